#include "server/api/http/routes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/api/http/api_error.h"
#include "server/http/trace_fields.h"

namespace lowkey {

RpcContext ContextOf(const RoutedRequest& request) {
  const HttpHead& head = request.exchange.head();
  return {.method = head.path,
          .peer = request.peer,
          .tenant = request.tenant,
          .deadline = absl::InfiniteFuture(),
          .id = request.id,
          .trace = ReadTraceContext(head),
          .is_logged = request.is_logged};
}

MakeHttpHandler OnWorker(const RpcWorkers& workers, RunUnary run) {
  return [make = MakeUnaryHandler(workers, std::move(run))](HttpStream& stream) {
    return make(stream);
  };
}

void HttpRoutes::Add(std::string_view method, std::string_view path, MakeRoute make) {
  LK_CHECK(make != nullptr);
  Methods& methods = paths_[std::string(path)];
  if (path.size() > 1 && path.ends_with('/')) folders_.emplace(path);
  if (method == "GET") methods.emplace("HEAD", make);
  const bool is_new = methods.emplace(std::string(method), std::move(make)).second;
  LK_CHECK(is_new);
}

void HttpRoutes::AddCall(std::string_view method, std::string_view path,
                         const HttpServices& services, MakeHttpHandler make) {
  const BodyKind body = method == "POST" ? BodyKind::kJson : BodyKind::kNone;
  Add(method, path, [&services, body, make = std::move(make)](const RoutedRequest& request) {
    return std::make_unique<HttpCall>(services, request.exchange, request.loop, ContextOf(request),
                                      body, make);
  });
}

const HttpRoutes::Methods* HttpRoutes::Find(std::string_view path) const {
  if (const auto it = paths_.find(path); it != paths_.end()) return &it->second;
  const Methods* found = nullptr;
  for (const std::string& folder : folders_) {  // in ascending order: the longest comes last
    if (path.starts_with(folder)) found = &paths_.at(folder);
  }
  return found;
}

std::unique_ptr<HttpHandler> HttpRoutes::MakeHandler(const RoutedRequest& request) const {
  const HttpHead& head = request.exchange.head();
  const Methods* methods = Find(head.path);
  if (methods == nullptr) return nullptr;
  if (const auto it = methods->find(head.method); it != methods->end()) return it->second(request);
  std::string allowed;
  for (const auto& [method, make] : *methods) {
    absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", method);
  }
  return MakeApiRefusal(request.exchange,
                        WithErrorCode(absl::InvalidArgumentError(absl::StrCat(
                                          "method: \"", head.method, "\", expected ", allowed)),
                                      "method_not_allowed", 405),
                        {{"allow", allowed}});
}

}  // namespace lowkey

#include "server/rpc/registry.h"

#include <google/protobuf/descriptor.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

std::string PathOf(const google::protobuf::MethodDescriptor& method) {
  return absl::StrCat("/", method.service()->full_name(), "/", method.name());
}

}  // namespace

void RpcRegistry::Add(const google::protobuf::MethodDescriptor& method, MakeRpcHandler make_handler,
                      size_t max_message_bytes) {
  LK_CHECK(make_handler != nullptr);
  const bool is_new =
      methods_
          .emplace(PathOf(method), RpcMethod{&method, std::move(make_handler), max_message_bytes})
          .second;
  LK_CHECK(is_new);
  services_[method.service()->full_name()] = method.service();
}

absl::Status RpcRegistry::CheckComplete() const {
  for (const auto& [name, service] : services_) {
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string path = PathOf(*service->method(i));
      if (Find(path) == nullptr) {
        return absl::FailedPreconditionError(absl::StrCat(path, ": no handler, expected one"));
      }
    }
  }
  return absl::OkStatus();
}

const RpcMethod* RpcRegistry::Find(std::string_view path) const {
  const auto it = methods_.find(path);
  return it == methods_.end() ? nullptr : &it->second;
}

std::vector<std::string> RpcRegistry::ServiceNames() const {
  std::vector<std::string> names;
  for (const auto& [name, service] : services_) names.push_back(name);
  return names;
}

}  // namespace lowkey

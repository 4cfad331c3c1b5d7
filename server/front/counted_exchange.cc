#include "server/front/counted_exchange.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/contained.h"
#include "server/rpc/metadata.h"

namespace lowkey {
namespace {

bool IsRpc(const HttpHead& head) {
  return head.method == "POST" && head.is_http2 &&
         IsRpcContentType(head.One("content-type").value_or(""));
}

// Notes how the exchange that it stands before is answered.
class CountedExchange final : public HttpExchange {
 public:
  CountedExchange(HttpExchange& exchange, bool is_rpc) : exchange_(exchange), is_rpc_(is_rpc) {}

  const HttpHead& head() const override { return exchange_.head(); }
  void AllowBody(size_t n_bytes) override { exchange_.AllowBody(n_bytes); }
  std::shared_ptr<const HeldBytes> HoldBody(size_t n_bytes) override {
    return exchange_.HoldBody(n_bytes);
  }
  void Start(int status, const HttpFields& fields) override {
    status_ = status;
    exchange_.Start(status, fields);
  }
  void Write(std::string_view bytes) override { exchange_.Write(bytes); }
  void End(const HttpFields& trailers) override {
    NoteRpcStatus(trailers);
    exchange_.End(trailers);
  }
  void StartAndEnd(int status, const HttpFields& fields) override {
    status_ = status;
    NoteRpcStatus(fields);
    exchange_.StartAndEnd(status, fields);
  }
  void Reset(HttpReset reason) override { exchange_.Reset(reason); }
  size_t unsent_bytes() const override { return exchange_.unsent_bytes(); }
  void Trust() override { exchange_.Trust(); }

  std::string code() const {
    if (is_rpc_) {
      return absl::StatusCodeToString(
          static_cast<absl::StatusCode>(rpc_status_.value_or(static_cast<int>(kGone))));
    }
    return absl::StrCat(status_.value_or(kGoneStatus));
  }

 private:
  static constexpr absl::StatusCode kGone = absl::StatusCode::kCancelled;
  static constexpr int kGoneStatus = 499;

  void NoteRpcStatus(const HttpFields& fields) {
    for (const HttpField& field : fields) {
      int code = 0;
      if (field.name == "grpc-status" && absl::SimpleAtoi(field.value, &code)) rpc_status_ = code;
    }
  }

  HttpExchange& exchange_;
  const bool is_rpc_;
  std::optional<int> status_, rpc_status_;
};

class CountedHandler final : public HttpHandler {
 public:
  CountedHandler(HttpExchange& exchange, OnAnswered on_answered)
      : exchange_(exchange, IsRpc(exchange.head())),
        api_(ApiOf(exchange.head())),
        on_answered_(std::move(on_answered)) {}
  ~CountedHandler() override {
    handler_.reset();
    RunContained([this] { on_answered_(api_, exchange_.code()); });
  }

  void SetHandler(std::unique_ptr<HttpHandler> handler) { handler_ = std::move(handler); }
  HttpExchange& exchange() { return exchange_; }

  void OnHead() override { handler_->OnHead(); }
  void OnBody(std::string_view bytes) override { handler_->OnBody(bytes); }
  void OnBodyEnd() override { handler_->OnBodyEnd(); }
  void OnSent() override { handler_->OnSent(); }

 private:
  CountedExchange exchange_;
  const std::string_view api_;
  const OnAnswered on_answered_;
  std::unique_ptr<HttpHandler> handler_;
};

}  // namespace

std::string_view ApiOf(const HttpHead& head) {
  const std::string_view path = head.path;
  if (IsRpc(head)) return path.starts_with("/inference.") ? "kserve" : "grpc";
  if (path == "/health" || path == "/ready" || path == "/metrics" || path == "/version") {
    return "ops";
  }
  if (path.starts_with("/v1/") || path == "/tokenize" || path == "/detokenize" ||
      path == "/tokenizer_info") {
    return "openai";
  }
  return path == "/" || path.starts_with("/lowkey/") ? "page" : "other";
}

std::unique_ptr<HttpHandler> MakeCounted(
    HttpExchange& exchange, OnAnswered on_answered,
    const std::function<std::unique_ptr<HttpHandler>(HttpExchange&)>& make) {
  auto counted = std::make_unique<CountedHandler>(exchange, std::move(on_answered));
  counted->SetHandler(make(counted->exchange()));
  return counted;
}

}  // namespace lowkey

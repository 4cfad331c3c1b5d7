#include "server/rpc/call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/retry_after.h"
#include "engine/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "server/rpc/metadata.h"
#include "server/rpc/wire_check.h"

namespace lowkey {
namespace {

const HttpField kContentType = {"content-type", "application/grpc"};

}  // namespace

void RefuseRpc(HttpExchange& exchange, const absl::Status& status) {
  HttpFields fields = {kContentType, {"grpc-accept-encoding", "identity"}};
  for (HttpField& field : ToStatusFields(status)) fields.push_back(std::move(field));
  exchange.StartAndEnd(200, fields);
}

RpcCall::RpcCall(const RpcServices& services, HttpExchange& exchange, EventLoop& loop,
                 RpcContext context)
    : services_(services),
      exchange_(exchange),
      loop_(loop),
      context_(std::move(context)),
      method_(services.registry.Find(exchange.head().path)),
      reader_(method_ == nullptr ? 0 : method_->max_message_bytes) {}

absl::Status RpcCall::CheckHead() {
  const HttpHead& head = exchange_.head();
  if (method_ == nullptr) {
    return absl::UnimplementedError(absl::StrCat(head.path, ": no such method"));
  }
  const std::optional<std::string_view> encoding = head.One("grpc-encoding");
  if (encoding.has_value() && *encoding != "identity") {
    return absl::UnimplementedError(absl::StrCat("grpc-encoding: ", std::string(*encoding),
                                                 ", expected identity: messages as they are"));
  }
  LK_ASSIGN_OR_RETURN(context_.deadline, RpcDeadline(head, SteadyNow()));
  return absl::OkStatus();
}

template <typename Step>
void RpcCall::Run(const Step& step) {
  if (!RunContained(step)) Finish(OutOfMemory());
}

void RpcCall::OnHead() {
  Run([this] {
    if (const absl::Status status = CheckHead(); !status.ok()) return Finish(status);
    handler_ = method_->make_handler(*this);
    AllowMore();
  });
}

absl::Status RpcCall::Hold(size_t n_bytes) {
  held_ = exchange_.HoldBody(n_bytes);
  if (held_ != nullptr) return absl::OkStatus();
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat(
          "message: ", n_bytes,
          " bytes, and the messages that come or wait to be read take all memory for them; try "
          "again")),
      kRetryAfterOthers);
}

// Allows the client to send more. An exchange ends when bytes that were allowed do not come in
// time. A stream of messages may rest between two of them; a single message and the end of the body
// after it may not.
void RpcCall::AllowMore() {
  size_t n_missing = method_->descriptor->client_streaming() ? 0 : kRpcPrefixBytes;
  if (reader_.is_within_message()) {
    n_missing = reader_.expected_bytes().value_or(kRpcPrefixBytes) - reader_.received_bytes();
  }
  const size_t wanted = n_received_ + n_missing;
  if (wanted <= n_allowed_) return;
  exchange_.AllowBody(wanted - n_allowed_);
  n_allowed_ = wanted;
}

absl::Status RpcCall::TakeMessages(std::string_view bytes) {
  while (!bytes.empty() && !is_finished_) {
    absl::StatusOr<std::optional<std::string>> message = reader_.Take(bytes);
    if (!message.ok()) {
      if (absl::IsResourceExhausted(message.status())) {
        services_.on_refusal(NetworkRefusal::kBodySize);
      }
      return message.status();
    }
    const size_t n_bytes =
        message->has_value() ? (*message)->size() : reader_.expected_bytes().value_or(0);
    if (n_bytes > kSmallMessageBytes && held_ == nullptr) LK_RETURN_IF_ERROR(Hold(n_bytes));
    if (!message->has_value()) continue;
    const auto held = std::exchange(held_, nullptr);
    const absl::Status checked = CheckWire(**message, *method_->descriptor->input_type());
    if (!checked.ok()) {
      services_.on_refusal(NetworkRefusal::kElements);
      return checked;
    }
    handler_->OnMessage({std::move(**message), held});
  }
  return absl::OkStatus();
}

void RpcCall::OnBody(std::string_view bytes) {
  if (is_finished_) return;
  n_received_ += bytes.size();
  Run([this, bytes] {
    if (const absl::Status status = TakeMessages(bytes); !status.ok()) return Finish(status);
    if (!is_finished_) AllowMore();
  });
}

void RpcCall::OnBodyEnd() {
  if (is_finished_) return;
  Run([this] {
    if (!reader_.is_within_message()) return handler_->OnHalfClose();
    Finish(absl::InternalError("message: the call's body ended within a message"));
  });
}

void RpcCall::OnSent() {
  if (handler_ != nullptr && !is_finished_) Run([this] { handler_->OnSent(); });
}

void RpcCall::Write(std::string_view message) {
  if (is_finished_) return;
  const bool is_written = RunContained([this, message] {
    std::string frame = RpcPrefix(message.size());
    frame.append(message);
    if (!std::exchange(is_started_, true)) exchange_.Start(200, {kContentType});
    exchange_.Write(frame);
  });
  if (!is_written) Break();
}

void RpcCall::Finish(const absl::Status& status) {
  if (std::exchange(is_finished_, true)) return;
  if (handler_ != nullptr) handler_->OnFinished(status);
  const bool is_sent = RunContained([this, &status] {
    if (is_started_) return exchange_.End(ToStatusFields(status));
    RefuseRpc(exchange_, status);
  });
  if (!is_sent) Break();
}

void RpcCall::Break() {
  is_finished_ = true;
  exchange_.Reset(HttpReset::kEnhanceYourCalm);  // gRPC's RESOURCE_EXHAUSTED
}

}  // namespace lowkey

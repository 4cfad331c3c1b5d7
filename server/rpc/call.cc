#include "server/rpc/call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "server/request/request.h"
#include "server/rpc/metadata.h"
#include "server/rpc/wire_check.h"

namespace lowkey {
namespace {

const HttpField kContentType = {"content-type", "application/grpc"};

}  // namespace

void RefuseRpc(HttpExchange& exchange, const absl::Status& status) {
  HttpFields fields = {kContentType};
  for (HttpField& field : ToStatusFields(status)) fields.push_back(std::move(field));
  exchange.StartAndEnd(200, fields);
}

RpcCall::RpcCall(const RpcServices& services, HttpExchange& exchange, EventLoop& loop,
                 RpcContext context)
    : services_(services),
      exchange_(exchange),
      loop_(loop),
      context_(std::move(context)),
      reader_(kMaxMessageBytes) {}

RpcCall::~RpcCall() { ReleaseReserved(); }

absl::Status RpcCall::CheckHead() {
  const HttpHead& head = exchange_.head();
  method_ = services_.registry.Find(head.path);
  if (method_ == nullptr) {
    return absl::UnimplementedError(absl::StrCat(head.path, ": no such method"));
  }
  const std::optional<std::string_view> encoding = head.One("grpc-encoding");
  if (encoding.has_value() && *encoding != "identity") {
    return absl::UnimplementedError(absl::StrCat("grpc-encoding: ", std::string(*encoding),
                                                 ", expected identity: messages as they are"));
  }
  LK_ASSIGN_OR_RETURN(context_.deadline, RpcDeadline(head, absl::Now()));
  return absl::OkStatus();
}

void RpcCall::OnHead() {
  if (const absl::Status status = CheckHead(); !status.ok()) {
    is_finished_ = true;
    HttpFields fields = {kContentType, {"grpc-accept-encoding", "identity"}};
    for (HttpField& field : ToStatusFields(status)) fields.push_back(std::move(field));
    return exchange_.StartAndEnd(200, fields);
  }
  handler_ = method_->make_handler(*this);
  AllowMore();
}

absl::Status RpcCall::Reserve(size_t n_bytes) {
  if (!services_.bodies.Take(static_cast<int64_t>(n_bytes))) {
    services_.on_refusal(NetworkRefusal::kBodyMemory);
    return absl::ResourceExhaustedError(
        absl::StrCat("message: ", n_bytes,
                     " bytes, and the messages that are being received take all memory for them; "
                     "try again"));
  }
  n_reserved_ = static_cast<int64_t>(n_bytes);
  return absl::OkStatus();
}

void RpcCall::ReleaseReserved() { services_.bodies.Give(std::exchange(n_reserved_, 0)); }

// What is allowed and does not come ends the exchange in time. A stream of messages may rest between
// two of them; a single message and the end of the body after it may not.
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
    if (!message->has_value()) {
      const std::optional<size_t> expected = reader_.expected_bytes();
      if (expected.has_value() && n_reserved_ == 0) LK_RETURN_IF_ERROR(Reserve(*expected));
      continue;
    }
    ReleaseReserved();
    const absl::Status checked = CheckWire(**message, *method_->descriptor->input_type());
    if (!checked.ok()) {
      services_.on_refusal(NetworkRefusal::kElements);
      return checked;
    }
    handler_->OnMessage(std::move(**message));
  }
  return absl::OkStatus();
}

void RpcCall::OnBody(std::string_view bytes) {
  if (is_finished_) return;
  n_received_ += bytes.size();
  if (const absl::Status status = TakeMessages(bytes); !status.ok()) return Finish(status);
  if (!is_finished_) AllowMore();
}

void RpcCall::OnBodyEnd() {
  if (is_finished_) return;
  if (reader_.is_within_message()) {
    return Finish(absl::InternalError("message: the call's body ended within a message"));
  }
  handler_->OnHalfClose();
}

void RpcCall::OnSent() {
  if (handler_ != nullptr && !is_finished_) handler_->OnSent();
}

void RpcCall::Write(std::string_view message) {
  if (is_finished_) return;
  if (!is_started_) {
    is_started_ = true;
    exchange_.Start(200, {kContentType});
  }
  std::string frame = RpcPrefix(message.size());
  frame.append(message);
  exchange_.Write(frame);
}

void RpcCall::Finish(const absl::Status& status) {
  if (std::exchange(is_finished_, true)) return;
  if (is_started_) return exchange_.End(ToStatusFields(status));
  RefuseRpc(exchange_, status);
}

}  // namespace lowkey

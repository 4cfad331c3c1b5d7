#include "server/api/http/http_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/retry_after.h"
#include "server/api/http/api_error.h"

namespace lowkey {
namespace {

// The first piece of a body; each further one is as long as all before it.
constexpr size_t kFirstBytes = size_t{64} << 10;
// The client of a stream that waits for its turn learns after so long that it was understood.
constexpr absl::Duration kMaxWait = absl::Seconds(5);
// Proxies close connections that are silent for a minute or less.
constexpr absl::Duration kKeepAlive = absl::Seconds(15);
constexpr std::string_view kComment = ":\n\n";

bool IsJsonType(std::string_view type) {
  const std::string name(type.substr(0, type.find(';')));
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(name), "application/json");
}

}  // namespace

HttpCall::HttpCall(const HttpServices& services, HttpExchange& exchange, EventLoop& loop,
                   RpcContext context, BodyKind body, MakeHttpHandler make_handler)
    : services_(services),
      exchange_(exchange),
      loop_(loop),
      context_(std::move(context)),
      body_kind_(body),
      make_handler_(std::move(make_handler)) {}

HttpCall::~HttpCall() {
  if (is_event_stream_) services_.event_streams.Remove(loop_, *this);
}

template <typename Step>
void HttpCall::Run(const Step& step) {
  if (!RunContained(step)) Finish(OutOfMemory());
}

absl::Status HttpCall::CheckHead(const HttpHead& head) const {
  const auto unsupported = [](std::string message) {
    return WithErrorCode(absl::InvalidArgumentError(message), "unsupported_media_type", 415);
  };
  const std::string encoding(head.One("content-encoding").value_or("identity"));
  if (encoding != "identity") {
    return unsupported(absl::StrCat("content-encoding: \"", encoding, "\", expected identity"));
  }
  const std::string type(head.One("content-type").value_or(""));
  if (IsJsonType(type)) return absl::OkStatus();
  return unsupported(absl::StrCat("content-type: \"", type, "\", expected application/json"));
}

void HttpCall::OnHead() {
  Run([this] {
    is_head_request_ = exchange_.head().method == "HEAD";
    if (body_kind_ == BodyKind::kNone) {
      handler_ = make_handler_(*this);
      body_ = exchange_.head().query;
      return Deliver();
    }
    absl::Status status = CheckHead(exchange_.head());
    if (status.ok() && exchange_.head().has_body) status = AllowMore();
    if (!status.ok()) return Finish(status);
    handler_ = make_handler_(*this);
  });
}

absl::Status HttpCall::AllowMore() {
  if (body_.size() < n_allowed_ || n_allowed_ > kMaxBodyBytes) return absl::OkStatus();
  // One byte past the limit shows that a body is too long.
  const size_t n = std::min(std::max(n_allowed_, kFirstBytes), kMaxBodyBytes + 1 - n_allowed_);
  std::shared_ptr<const HeldBytes> held = exchange_.HoldBody(n);
  if (held == nullptr) {
    return WithRetryAfter(
        absl::ResourceExhaustedError("the bodies that come or wait to be read take all memory for "
                                     "them; try again"),
        kRetryAfterOthers);
  }
  held_.push_back(std::move(held));
  n_allowed_ += n;
  // Most bodies are far shorter than the first piece.
  if (n_allowed_ > kFirstBytes) body_.reserve(n_allowed_);
  exchange_.AllowBody(n);
  return absl::OkStatus();
}

void HttpCall::OnBody(std::string_view bytes) {
  if (is_finished_ || body_kind_ == BodyKind::kNone) return;
  Run([this, bytes] {
    if (bytes.size() > kMaxBodyBytes - body_.size()) {
      services_.on_refusal(NetworkRefusal::kBodySize);
      return Finish(
          WithErrorCode(absl::InvalidArgumentError(absl::StrCat("body: over ", kMaxBodyBytes,
                                                                " bytes, expected at most that")),
                        "request_too_large", 413));
    }
    body_.append(bytes);
    if (const absl::Status status = AllowMore(); !status.ok()) Finish(status);
  });
}

void HttpCall::OnBodyEnd() {
  if (is_finished_ || body_kind_ == BodyKind::kNone) return;
  Run([this] { Deliver(); });
}

void HttpCall::Deliver() {
  // The pieces of memory are kept together, for as long as the message is.
  auto all = std::make_shared<std::vector<std::shared_ptr<const HeldBytes>>>(std::move(held_));
  const HeldBytes* first = all->empty() ? nullptr : all->front().get();
  handler_->OnMessage({std::move(body_), std::shared_ptr<const HeldBytes>(std::move(all), first)});
  handler_->OnHalfClose();
}

void HttpCall::OnSent() {
  if (handler_ != nullptr && !is_finished_) Run([this] { handler_->OnSent(); });
}

void HttpCall::BecomeEventStream(WriteErrorEvent write_error) {
  services_.event_streams.Add(loop_, *this);
  is_event_stream_ = true;
  write_error_ = std::move(write_error);
  last_write_ = SteadyNow();
}

void HttpCall::StartEvents() {
  if (is_started_) return;
  HttpFields fields = fields_;
  fields.push_back({"content-type", "text/event-stream; charset=utf-8"});
  fields.push_back({"cache-control", "no-store"});
  fields.push_back({"x-accel-buffering", "no"});  // nginx sends events as they come
  exchange_.Start(200, fields);
  is_started_ = true;
}

void HttpCall::SendEvent(std::string_view bytes) {
  StartEvents();
  exchange_.Write(bytes);
  last_write_ = SteadyNow();
}

void HttpCall::Write(std::string_view bytes) {
  if (is_finished_) return;
  const bool is_written = RunContained([this, bytes] {
    if (is_event_stream_) return SendEvent(bytes);
    document_.append(bytes);
  });
  if (!is_written) Break();
}

void HttpCall::OnSilence(absl::Time now) {
  if (is_finished_ || now - last_write_ < (is_started_ ? kKeepAlive : kMaxWait)) return;
  Run([this] { SendEvent(kComment); });
}

void HttpCall::EndEvents(const absl::Status& status) {
  if (!status.ok()) exchange_.Write(write_error_(status));
  exchange_.End({});
}

void HttpCall::Finish(const absl::Status& status) {
  if (std::exchange(is_finished_, true)) return;
  if (handler_ != nullptr) handler_->OnFinished(status);
  const bool is_sent = RunContained([this, &status] {
    if (is_started_) return EndEvents(status);
    if (status.ok() && is_event_stream_) {
      StartEvents();
      return EndEvents(status);
    }
    const AnswerBody body = is_head_request_ ? AnswerBody::kLeftOut : AnswerBody::kSent;
    if (status.ok()) return AnswerJson(exchange_, body, 200, document_, fields_);
    ApiError error = ToApiError(status);
    error.fields.insert(error.fields.end(), fields_.begin(), fields_.end());
    AnswerJson(exchange_, body, error.http_status, error.json, std::move(error.fields));
  });
  if (!is_sent) Break();
}

void HttpCall::Break() {
  is_finished_ = true;
  exchange_.Reset(HttpReset::kEnhanceYourCalm);
}

}  // namespace lowkey

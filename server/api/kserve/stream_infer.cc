// ModelStreamInfer: a call with many requests.
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/contained.h"
#include "server/api/kserve/infer.h"

namespace lowkey {
namespace {

constexpr size_t kMaxInFlight = 64;
// A client that sends on without reading the errors gets no more of them than this.
constexpr size_t kMaxUnsentBytes = size_t{1} << 20;
constexpr char kErrorMetadata[] = "triton_grpc_error";

class StreamInfer;

// One request in flight: a call within the call, whose messages and status become answers. What it
// leaves unsent is its call's, so that a reader that stops pauses all requests of the call.
class RequestInFlight final : public RpcStream {
 public:
  RequestInFlight(StreamInfer& call, RpcStream& stream, const InferContext& context, std::string id)
      : call_(call), stream_(stream), request_(context.counters) {
    results_->id = std::move(id);
    const auto make_codec = [service = &context.generation.service, results = results_] {
      return std::make_unique<InferCodec>(*service, InferMethod::kStream, results);
    };
    handler_ = StreamHandler(context.generation, "ModelStreamInfer", make_codec)(*this);
  }

  void Begin(RpcMessage message) {
    handler_->OnMessage(std::move(message));
    handler_->OnHalfClose();
  }
  void OnSent() {
    if (!is_over_) handler_->OnSent();
  }
  bool is_over() const { return is_over_; }

 private:
  const RpcContext& context() const override { return stream_.context(); }
  EventLoop& loop() const override { return stream_.loop(); }
  void Write(std::string_view message) override { stream_.Write(message); }
  void Finish(const absl::Status& status) override;
  size_t unsent_bytes() const override { return stream_.unsent_bytes(); }

  StreamInfer& call_;
  RpcStream& stream_;
  CountedRequest request_;
  const std::shared_ptr<InferResults> results_ = std::make_shared<InferResults>();
  bool is_over_ = false;
  std::unique_ptr<RpcHandler> handler_;
};

class StreamInfer final : public RpcHandler {
 public:
  StreamInfer(RpcStream& stream, const InferContext& context)
      : stream_(stream),
        context_(context),
        ends_at_error_(stream.Metadata(kErrorMetadata) == "true") {
    context_.streams->Add(this, [loop = &stream.loop(), self = std::weak_ptr<StreamInfer*>(self_)] {
      Post(*loop, self, [](StreamInfer& call) {
        call.is_stopped_ = true;
        call.DropEnded();
      });
    });
  }
  ~StreamInfer() override { context_.streams->Remove(this); }

  void OnMessage(RpcMessage message) override {
    DropEnded();
    if (is_finished_) return;
    std::string id = PeekInferId(message.bytes);
    if (requests_.size() >= kMaxInFlight) {
      return WriteError(
          id, absl::ResourceExhaustedError(
                  absl::StrCat("requests in flight on this stream: ", kMaxInFlight,
                               " already, expected at most that many; send more as answers come")));
    }
    requests_.push_back(std::make_unique<RequestInFlight>(*this, stream_, context_, std::move(id)));
    requests_.back()->Begin(std::move(message));
  }

  void OnHalfClose() override {
    is_half_closed_ = true;
    DropEnded();
  }

  // The requests take turns at being the first, as what one of them sends leaves less for the
  // others.
  void OnSent() override {
    const size_t n = requests_.size();
    ++turn_;
    for (size_t i = 0; i < n && !is_finished_; ++i) requests_[(turn_ + i) % n]->OnSent();
    DropEnded();
  }

  void WriteError(const std::string& id, const absl::Status& status) {
    if (is_finished_) return;
    if (ends_at_error_) return Finish(status);
    if (stream_.unsent_bytes() > kMaxUnsentBytes) {
      return Finish(absl::ResourceExhaustedError(
          absl::StrCat("answers: over ", kMaxUnsentBytes, " bytes wait, expected a client that ",
                       "reads them")));
    }
    stream_.Write(StreamError(id, status));
  }

  // Ends the call and its requests. Does not throw.
  void Finish(const absl::Status& status) {
    if (std::exchange(is_finished_, true)) return;
    stream_.Finish(status);
    OnRequestEnd();
  }

  // A request has ended. It cannot be destroyed yet, since it is what calls this. Does not throw.
  void OnRequestEnd() {
    // Without memory for this the next message, or the sending of the last answer, does it.
    RunContained(
        [this] { Post(stream_.loop(), self_, [](StreamInfer& call) { call.DropEnded(); }); });
  }

 private:
  // Runs `work` on the loop's thread unless the call is gone by then.
  static void Post(EventLoop& loop, std::weak_ptr<StreamInfer*> weak_self,
                   void (*work)(StreamInfer& call)) {
    loop.Post([weak_self = std::move(weak_self), work] {
      if (const auto self = weak_self.lock()) work(**self);
    });
  }

  // Destroys the requests that have ended; all of them once the call has ended, which cancels them.
  void DropEnded() {
    std::erase_if(requests_,
                  [this](const auto& request) { return is_finished_ || request->is_over(); });
    if (is_finished_ || !requests_.empty()) return;
    if (is_half_closed_) return Finish(absl::OkStatus());
    if (is_stopped_) Finish(absl::UnavailableError("the server is stopping"));
  }

  RpcStream& stream_;
  const InferContext& context_;
  const bool ends_at_error_;
  // Expires with the call, on the loop's thread.
  const std::shared_ptr<StreamInfer*> self_ = std::make_shared<StreamInfer*>(this);
  bool is_half_closed_ = false, is_finished_ = false;
  bool is_stopped_ = false;  // the server stops: what is in flight is the last
  size_t turn_ = 0;
  std::vector<std::unique_ptr<RequestInFlight>> requests_;
};

void RequestInFlight::Finish(const absl::Status& status) {
  is_over_ = true;
  request_.End(status, results_->timings);
  const bool is_answered = RunContained([&] {
    if (!status.ok()) return call_.WriteError(results_->id, status);
    for (const std::string& answer : results_->last_answers) {
      if (answer.size() > kMaxAnswerBytes) {
        return call_.WriteError(results_->id, AnswerTooLong(answer.size()));
      }
    }
    for (const std::string& answer : results_->last_answers) stream_.Write(answer);
  });
  if (!is_answered) call_.Finish(OutOfMemory());
  call_.OnRequestEnd();
}

}  // namespace

MakeRpcHandler StreamInferHandler(const InferContext& context) {
  return [&context](RpcStream& stream) { return std::make_unique<StreamInfer>(stream, context); };
}

}  // namespace lowkey

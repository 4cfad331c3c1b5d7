#include "server/api/kserve/infer.h"

#include "engine/base/status_macros.h"
#include "server/api/calls/event_queue.h"

namespace lowkey {
namespace {

// The stream of a ModelInfer call, whose end is counted.
class CountedStream final : public RpcStream {
 public:
  CountedStream(RpcStream& stream, const InferContext& context,
                std::shared_ptr<InferResults> results)
      : stream_(stream), request_(context.counters), results_(std::move(results)) {}

  const RpcContext& context() const override { return stream_.context(); }
  EventLoop& loop() const override { return stream_.loop(); }
  void Write(std::string_view message) override { stream_.Write(message); }
  void Finish(const absl::Status& status) override {
    request_.End(status, results_->timings);
    stream_.Finish(status);
  }
  size_t unsent_bytes() const override { return stream_.unsent_bytes(); }

 private:
  RpcStream& stream_;
  CountedRequest request_;
  const std::shared_ptr<InferResults> results_;
};

// Handles a ModelInfer call.
class Infer final : public RpcHandler {
 public:
  Infer(RpcStream& stream, const InferContext& context)
      : results_(std::make_shared<InferResults>()),
        stream_(stream, context, results_),
        handler_(GenerateHandler(context.generation, "ModelInfer",
                                 [service = &context.generation.service, results = results_] {
                                   return std::make_unique<InferCodec>(
                                       *service, InferMethod::kSingle, results);
                                 })(stream_)) {}

  void OnMessage(RpcMessage message) override { handler_->OnMessage(std::move(message)); }
  void OnHalfClose() override { handler_->OnHalfClose(); }
  void OnSent() override { handler_->OnSent(); }
  void OnFinished(const absl::Status& status) override { handler_->OnFinished(status); }

 private:
  const std::shared_ptr<InferResults> results_;
  CountedStream stream_;
  const std::unique_ptr<RpcHandler> handler_;  // ends before its stream does
};

}  // namespace

absl::StatusOr<GenerationRequest> InferCodec::Read(const std::string& message) {
  LK_ASSIGN_OR_RETURN(InferRequest request, ReadInferRequest(message, method_));
  results_->id = request.answer.id;
  answers_.emplace(std::move(request.answer), service_.options().model_name, service_.tokenizer());
  return std::move(request.generation);
}

std::vector<std::string> InferCodec::LastAnswers(const v1::FinalEvent& final_event) {
  const AnswerOptions& options = answers_->options();
  std::vector<std::string> answers;
  const bool is_last = !options.has_empty_final;
  if (!options.is_streamed) {
    *whole_.mutable_final() = final_event;
    answers.push_back(StreamAnswer(answers_->Whole(whole_), is_last));
  } else if (is_last || answers_->HasEndOutputs()) {
    answers.push_back(StreamAnswer(answers_->End(final_event), is_last));
  }
  if (!is_last) answers.push_back(StreamAnswer(answers_->Empty(final_event), true));
  return answers;
}

std::string InferCodec::Write(const v1::GenerateEvent& event) {
  if (event.has_final()) {
    results_->last_answers = LastAnswers(event.final());
    results_->timings = event.final().timings();
    return "";
  }
  if (!event.has_delta()) return "";
  if (answers_->options().is_streamed) return StreamAnswer(answers_->Delta(event.delta()), false);
  n_kept_bytes_ += event.delta().ByteSizeLong();
  while (whole_.choices_size() <= event.delta().choice()) whole_.add_choices();
  Append(event.delta(), *whole_.mutable_choices(event.delta().choice()));
  return "";
}

std::string InferCodec::Write(const v1::GenerateResponse& response) {
  results_->timings = response.final().timings();
  return answers_->Whole(response).SerializeAsString();
}

MakeRpcHandler InferHandler(const InferContext& context) {
  return [&context](RpcStream& stream) { return std::make_unique<Infer>(stream, context); };
}

}  // namespace lowkey

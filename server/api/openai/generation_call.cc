#include "server/api/openai/generation_call.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "server/api/http/api_error.h"
#include "server/metrics/metrics.h"

namespace lowkey {
namespace {

// Gives one prompt's request to its engine call, and its results to the writer.
class PromptCodec final : public GenerationCodec {
 public:
  PromptCodec(GenerationRequest request, std::shared_ptr<AnswerWriter> writer, size_t prompt)
      : request_(std::move(request)), writer_(std::move(writer)), prompt_(prompt) {}

  absl::StatusOr<GenerationRequest> Read(const std::string&) override {
    return std::move(request_);
  }
  std::string Write(const v1::GenerateEvent& event) override {
    return writer_->Write(prompt_, event);
  }
  std::string Flush() override { return writer_->Flush(prompt_); }
  std::string Write(const v1::GenerateResponse& response) override {
    writer_->Add(prompt_, response);
    return "";
  }

 private:
  GenerationRequest request_;
  const std::shared_ptr<AnswerWriter> writer_;
  const size_t prompt_;
};

class GenerationCall final : public SingleRequestHandler {
 public:
  GenerationCall(HttpStream& stream, const GenerationContext& context, const std::string& method,
                 const ReadGenerations& read)
      : SingleRequestHandler(stream),
        http_(stream),
        context_(context),
        method_(method),
        read_(read),
        rpc_(stream.context()) {}
  ~GenerationCall() override {
    link_->End();
    link_->call = nullptr;
  }

  // The prompts take turns at being the first, as what one of them sends leaves less for the
  // others.
  void OnSent() override {
    const size_t n = prompts_.size();
    ++turn_;
    for (size_t i = 0; i < n; ++i) {
      PromptStream& prompt = *prompts_[(turn_ + i) % n];
      if (prompt.handler != nullptr) prompt.handler->OnSent();
    }
  }

 private:
  // What the worker that reads the body knows of the call. `call` is used on the loop alone.
  struct Link : CallState {
    GenerationCall* call = nullptr;
    absl::StatusOr<Generations> generations = Generations();
  };

  // The end of one prompt's engine call.
  class PromptStream final : public RpcStream {
   public:
    explicit PromptStream(GenerationCall& call) : call_(call) {}

    const RpcContext& context() const override { return call_.rpc_; }
    EventLoop& loop() const override { return call_.stream_.loop(); }
    void Write(std::string_view bytes) override {
      if (!bytes.empty()) call_.stream_.Write(bytes);
    }
    void Finish(const absl::Status& status) override { call_.OnPromptEnd(status); }
    size_t unsent_bytes() const override { return call_.stream_.unsent_bytes(); }

    std::unique_ptr<RpcHandler> handler;

   private:
    GenerationCall& call_;
  };

  void OnRequest(RpcMessage message) override;
  void OnFinished(const absl::Status& status) override {
    for (const auto& prompt : prompts_) {
      if (prompt->handler != nullptr) prompt->handler->OnFinished(status);
    }
  }
  void Begin();
  void OnPromptEnd(const absl::Status& status);
  void Refuse(const absl::Status& status);

  HttpStream& http_;
  const GenerationContext& context_;
  const std::string& method_;
  const ReadGenerations& read_;
  RpcContext rpc_;
  const absl::Time start_ = SteadyNow();
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
  std::shared_ptr<AnswerWriter> writer_;
  FieldNames names_ = FieldNames::kChat;
  bool is_stream_ = false;
  size_t n_running_ = 0;
  size_t turn_ = 0;  // which prompt is the first to send
  bool has_failed_ = false;
  std::vector<std::unique_ptr<PromptStream>> prompts_;
};

void GenerationCall::OnRequest(RpcMessage message) {
  link_->call = this;
  const absl::Status status =
      context_.workers.Run([link = link_, read = read_, rpc = rpc_, loop = &stream_.loop(),
                            message = std::move(message)]() mutable {
        const bool has_run = RunContained([&] {
          if (!link->is_over()) link->generations = read(rpc, *link, message.bytes);
        });
        if (!has_run) link->generations = OutOfMemory();
        message = {};
        RunInTheEnd([&] {
          loop->Post([link] {
            if (link->call != nullptr) link->call->Begin();
          });
        });
      });
  if (!status.ok()) Refuse(status);
}

// As EngineCall does with calls that were not submitted.
void GenerationCall::Refuse(const absl::Status& status) {
  if (Metrics* metrics = context_.service.options().metrics) {
    RunContained([&] { metrics->CountRefusal(status.code()); });
  }
  if (context_.log != nullptr) {
    if (rpc_.is_logged != nullptr) *rpc_.is_logged = true;
    RunContained([&] {
      context_.log->Write({.method = method_,
                           .tenant = rpc_.tenant.name,
                           .status = status,
                           .duration = SteadyNow() - start_,
                           .request_id = rpc_.id.text,
                           .trace = rpc_.trace});
    });
  }
  stream_.Finish(status);
}

void GenerationCall::Begin() {
  if (!link_->generations.ok()) return Refuse(link_->generations.status());
  const bool has_begun = RunContained([this] {
    Generations generations = *std::move(link_->generations);
    rpc_.deadline = std::min(rpc_.deadline, generations.deadline);
    writer_ = std::move(generations.writer);
    names_ = generations.names;
    is_stream_ = generations.is_stream;
    rpc_.id.text = generations.id;
    http_.AddField({"x-request-id", generations.id});
    if (is_stream_) {
      http_.BecomeEventStream(
          [writer = writer_](const absl::Status& status) { return writer->Error(status); });
    }
    n_running_ = generations.requests.size();
    prompts_.reserve(n_running_);
    for (size_t i = 0; i < generations.requests.size() && !has_failed_; ++i) {
      auto make_codec = [this, i, &generations] {
        return std::make_unique<PromptCodec>(std::move(generations.requests[i]), writer_, i);
      };
      PromptStream& stream = *prompts_.emplace_back(std::make_unique<PromptStream>(*this));
      stream.handler = is_stream_ ? StreamHandler(context_, method_, make_codec)(stream)
                                  : GenerateHandler(context_, method_, make_codec)(stream);
      stream.handler->OnMessage({});
      stream.handler->OnHalfClose();
    }
  });
  if (!has_begun) stream_.Finish(OutOfMemory());
}

void GenerationCall::OnPromptEnd(const absl::Status& status) {
  if (!status.ok()) {
    has_failed_ = true;
    absl::Status named = status;
    RunContained([&] { named = WithApiNames(status, names_); });
    return stream_.Finish(named);
  }
  if (const size_t n_bytes = writer_->n_added_bytes(); n_bytes > kMaxAnswerBytes) {
    return stream_.Finish(AnswerTooLong(n_bytes));
  }
  if (--n_running_ > 0) return;
  std::string rest;
  const bool is_written =
      RunContained([&] { rest = is_stream_ ? writer_->End() : writer_->Whole(); });
  if (!is_written) return stream_.Finish(OutOfMemory());
  if (rest.size() > kMaxAnswerBytes) return stream_.Finish(AnswerTooLong(rest.size()));
  stream_.Write(rest);
  stream_.Finish(absl::OkStatus());
}

}  // namespace

std::string AnswerWriter::Error(const absl::Status& status) {
  return absl::StrCat("data: ", ToApiError(status).json, "\n\n");
}

MakeHttpHandler GenerationHandler(const GenerationContext& context, std::string method,
                                  ReadGenerations read) {
  return [&context, method = std::move(method), read = std::move(read)](HttpStream& stream) {
    return std::make_unique<GenerationCall>(stream, context, method, read);
  };
}

}  // namespace lowkey

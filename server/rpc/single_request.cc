#include "server/rpc/single_request.h"

#include "absl/time/clock.h"

namespace lowkey {
namespace {

class UnaryHandler final : public SingleRequestHandler {
 public:
  UnaryHandler(RpcStream& stream, const RpcWorkers& workers, const RunUnary& run)
      : SingleRequestHandler(stream), workers_(workers), run_(run) {}

  ~UnaryHandler() override {
    link_->End();
    link_->stream = nullptr;
  }

 private:
  // What the work on another thread knows of the call. `stream` is used on the loop's thread alone.
  struct Link : CallState {
    RpcStream* stream = nullptr;
  };

  void OnRequest(std::string message) override {
    link_->stream = &stream_;
    const size_t n_bytes = message.size();
    const absl::Status status =
        workers_.Run(n_bytes, [link = link_, run = run_, context = stream_.context(),
                               loop = &stream_.loop(), message = std::move(message)] {
          absl::StatusOr<std::string> answer = absl::CancelledError("cancelled");
          if (context.deadline <= absl::Now()) {
            answer = absl::DeadlineExceededError("deadline exceeded");
          } else if (!link->is_over()) {
            answer = run(context, *link, message);
          }
          loop->Post([link, answer = std::move(answer)] {
            if (link->stream == nullptr) return;
            if (answer.ok()) link->stream->Write(*answer);
            link->stream->Finish(answer.status());
          });
        });
    if (!status.ok()) stream_.Finish(status);
  }

  const RpcWorkers& workers_;
  const RunUnary run_;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
};

}  // namespace

void SingleRequestHandler::OnMessage(std::string message) {
  if (message_.has_value()) {
    return stream_.Finish(absl::UnimplementedError("message: a second one, expected one"));
  }
  message_ = std::move(message);
}

void SingleRequestHandler::OnHalfClose() {
  if (!message_.has_value()) {
    return stream_.Finish(absl::UnimplementedError("message: none, expected one"));
  }
  OnRequest(*std::exchange(message_, std::nullopt));
}

absl::Status RpcWorkers::Run(size_t n_message_bytes, std::function<void()> work) const {
  const auto n_bytes = static_cast<int64_t>(n_message_bytes);
  const auto refuse = [this] {
    on_refusal(NetworkRefusal::kQueue);
    return absl::ResourceExhaustedError("too many requests wait to be read; try again");
  };
  if (!messages.Take(n_bytes)) return refuse();
  const bool runs = pool.Run([&budget = messages, n_bytes, work = std::move(work)] {
    work();
    budget.Give(n_bytes);
  });
  if (runs) return absl::OkStatus();
  messages.Give(n_bytes);
  return refuse();
}

MakeRpcHandler MakeUnaryHandler(const RpcWorkers& workers, RunUnary run) {
  return [&workers, run = std::move(run)](RpcStream& stream) {
    return std::make_unique<UnaryHandler>(stream, workers, run);
  };
}

}  // namespace lowkey

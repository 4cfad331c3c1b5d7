#include "server/rpc/single_request.h"

#include <algorithm>
#include <chrono>

#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/retry_after.h"

namespace lowkey {
namespace {

constexpr int64_t kPeriodNs = 1'000'000;
constexpr int64_t kMaxBurstNs = 7 * kPeriodNs;

void Answer(const absl::StatusOr<std::string>& answer, RpcStream& stream) {
  if (answer.ok()) stream.Write(*answer);
  stream.Finish(answer.status());
}

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
    absl::StatusOr<std::string> answer = std::string();
  };

  void OnRequest(RpcMessage message) override {
    link_->stream = &stream_;
    const absl::Status status =
        workers_.Run([link = link_, run = run_, context = stream_.context(), loop = &stream_.loop(),
                      message = std::move(message)]() mutable {
          const bool has_run = RunContained([&] {
            if (context.deadline <= SteadyNow()) {
              link->answer = absl::DeadlineExceededError("deadline exceeded");
            } else if (!link->is_over()) {
              link->answer = run(context, *link, message.bytes);
            }
          });
          if (!has_run) link->answer = OutOfMemory();
          message = {};  // its memory is free before the client can send the next one
          RunInTheEnd([&] {
            loop->Post([link] {
              if (link->stream != nullptr) Answer(link->answer, *link->stream);
            });
          });
        });
    if (!status.ok()) stream_.Finish(status);
  }

  const RpcWorkers& workers_;
  const RunUnary run_;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
};

// Answers on the loop.
class ImmediateHandler final : public SingleRequestHandler {
 public:
  ImmediateHandler(RpcStream& stream, const RunImmediately& run)
      : SingleRequestHandler(stream), run_(run) {}

 private:
  void OnRequest(RpcMessage message) override { Answer(run_(message.bytes), stream_); }

  const RunImmediately run_;
};

}  // namespace

void SingleRequestHandler::OnMessage(RpcMessage message) {
  if (++n_messages_ == 1) {
    message_ = std::move(message);
  } else if (n_messages_ == 2) {
    message_.reset();
    stream_.Finish(absl::UnimplementedError("message: a second one, expected one"));
  }
}

void SingleRequestHandler::OnHalfClose() {
  if (n_messages_ == 0) {
    return stream_.Finish(absl::UnimplementedError("message: none, expected one"));
  }
  if (message_.has_value()) OnRequest(*std::exchange(message_, std::nullopt));
}

absl::Status RpcWorkers::Run(std::function<void()> work) const {
  if (pool.Run(std::move(work))) return absl::OkStatus();
  on_refusal(NetworkRefusal::kQueue);
  return WithRetryAfter(
      absl::ResourceExhaustedError("too many requests wait to be read; try again"),
      kRetryAfterOthers);
}

bool RpcWorkers::MayRunOnLoop() const {
  const int64_t now_ns =
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  int64_t free_ns = loop_is_free_ns;
  return free_ns - now_ns <= kMaxBurstNs &&
         loop_is_free_ns.compare_exchange_strong(free_ns, std::max(free_ns, now_ns) + kPeriodNs);
}

MakeRpcHandler MakeImmediateHandler(RunImmediately run) {
  return [run = std::move(run)](RpcStream& stream) {
    return std::make_unique<ImmediateHandler>(stream, run);
  };
}

MakeRpcHandler MakeUnaryHandler(const RpcWorkers& workers, RunUnary run) {
  return [&workers, run = std::move(run)](RpcStream& stream) {
    return std::make_unique<UnaryHandler>(stream, workers, run);
  };
}

}  // namespace lowkey

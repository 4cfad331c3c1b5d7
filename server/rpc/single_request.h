#ifndef LOWKEY_SERVER_RPC_SINGLE_REQUEST_H_
#define LOWKEY_SERVER_RPC_SINGLE_REQUEST_H_

#include <google/protobuf/arena.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/net/refusals.h"
#include "server/net/worker_pool.h"
#include "server/rpc/registry.h"
#include "server/rpc/stream.h"
#include "server/rpc/wire_check.h"

namespace lowkey {

// Handles a call whose client sends exactly one message: begins at its half-close, and ends with
// UNIMPLEMENTED if there is no message or a second one, as gRPC's table of statuses says.
class SingleRequestHandler : public RpcHandler {
 public:
  explicit SingleRequestHandler(RpcStream& stream) : stream_(stream) {}

  void OnMessage(RpcMessage message) final;
  void OnHalfClose() final;

 protected:
  virtual void OnRequest(RpcMessage message) = 0;

  RpcStream& stream_;

 private:
  std::optional<RpcMessage> message_;
  int64_t n_messages_ = 0;
};

// Bounds the work on messages that have come whole. Must outlive the calls.
struct RpcWorkers {
  WorkerPool& pool;
  OnRefusal on_refusal;

  // Runs `work` on the pool. RESOURCE_EXHAUSTED when too much waits.
  absl::Status Run(std::function<void()> work) const;

  // Returns whether a loop may do work of a few tenths of a millisecond itself: once in 1 ms, and
  // up to eight times at once, so that a flood of such work keeps nobody waiting. Thread-safe.
  bool MayRunOnLoop() const;

  // The time when the work allowed so far is paid for, 1 ms each, by a clock that is never set
  // back.
  mutable std::atomic<int64_t> loop_is_free_ns{0};
};

// Tells work on other threads whether its call is over. Thread-safe.
class CallState {
 public:
  bool is_over() const { return is_over_; }
  void End() { is_over_ = true; }

 private:
  std::atomic<bool> is_over_{false};
};

// Gives the call's tenant, deadline and cancellation to its request, which `call` must outlive.
template <typename Request>
void SetCaller(const RpcContext& context, const CallState& call, Request& request) {
  request.tenant = context.tenant;
  request.deadline = context.deadline;
  request.is_cancelled = [&call] { return call.is_over(); };
}

// Answers on a worker: serialized request in, serialized response out.
using RunUnary = std::function<absl::StatusOr<std::string>(
    const RpcContext& context, const CallState& call, const std::string& message)>;

// Answers on the call's loop, within microseconds.
using RunImmediately = std::function<absl::StatusOr<std::string>(const std::string& message)>;

MakeRpcHandler MakeImmediateHandler(RunImmediately run);

// Makes handlers that run `run` on the workers and answer with its result.
MakeRpcHandler MakeUnaryHandler(const RpcWorkers& workers, RunUnary run);

// The same for typed messages.
template <typename Request, typename Response>
MakeRpcHandler UnaryMethod(
    const RpcWorkers& workers,
    std::function<absl::Status(const RpcContext&, const CallState&, const Request&, Response&)>
        run) {
  return MakeUnaryHandler(
      workers,
      [run = std::move(run)](const RpcContext& context, const CallState& call,
                             const std::string& message) -> absl::StatusOr<std::string> {
        // Parsing that ends for a lack of memory leaves a message that only an arena can destroy.
        google::protobuf::Arena arena;
        Request& request = *google::protobuf::Arena::CreateMessage<Request>(&arena);
        if (absl::Status parsed = ParseMessage(message, request); !parsed.ok()) return parsed;
        Response response;
        if (absl::Status status = run(context, call, request, response); !status.ok()) {
          return status;
        }
        return response.SerializeAsString();
      });
}

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_SINGLE_REQUEST_H_

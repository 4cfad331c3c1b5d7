#ifndef LOWKEY_SERVER_GRPC_CALLS_H_
#define LOWKEY_SERVER_GRPC_CALLS_H_

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lowkey/v1/generation.pb.h"
#include "server/grpc/event_queue.h"
#include "server/grpc/live_calls.h"
#include "server/grpc/request_link.h"
#include "server/request/generation.h"
#include "server/request/tenant.h"
#include "server/request_log.h"
#include "server/text_service.h"

namespace lowkey {

class Metrics;

// Calls that wait for the engine. Each keeps itself alive until gRPC's OnDone; the engine's thread
// holds a reference of its own while it speaks to one.

// Returns the time at which the client gives up; InfiniteFuture if the client names none.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context);

struct CallContext {
  TextService& service;
  std::shared_ptr<LiveCalls> live_calls;
  RequestLog* log = nullptr;
  absl::StatusOr<Tenant> tenant;  // the error says why the caller may not call
  absl::Duration stall_timeout = absl::Seconds(60);
  absl::Time deadline = absl::InfiniteFuture();
};

// Writes one call's line to the log.
class CallLog {
 public:
  CallLog(const CallContext& context, std::string method)
      : log_(context.log),
        method_(std::move(method)),
        tenant_(context.tenant.ok() ? context.tenant->name : std::string()) {}

  void Write(const absl::Status& status, std::optional<GenerationResult> result) const;

 private:
  RequestLog* const log_;
  const std::string method_, tenant_;
  const absl::Time start_ = absl::Now();
};

// The parts that every call has.
struct CallParts {
  CallParts(const CallContext& context, std::string method)
      : log(context, std::move(method)), link(context.service) {}

  std::optional<LiveCalls::Call> live = {};  // set at admission
  const CallLog log;
  RequestLink link;
};

// A call of GenerateStream. Writes one event at a time, in order; the status follows the last
// event. Once 256 tokens wait for the reader the request is paused until fewer than 128 wait; a
// request that is paused for stall_timeout is cancelled and ends with RESOURCE_EXHAUSTED.
class StreamCall final : public grpc::ServerWriteReactor<v1::GenerateEvent> {
 public:
  // Starts the request, or finishes the call with its error.
  static grpc::ServerWriteReactor<v1::GenerateEvent>* Start(const CallContext& context,
                                                            const v1::GenerateRequest& request);

  explicit StreamCall(const CallContext& context);

  // The engine's thread calls these.
  void OnPromptLogprobs(v1::PromptLogprobs logprobs);
  SinkAnswer OnDelta(v1::ChoiceDelta delta);
  void OnEnd(const GenerationResult& result);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override { parts_.link.Cancel(); }
  void OnDone() override;

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginPause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndPause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnStallTimeout(int64_t pause);

  Metrics* const metrics_;  // may be null
  const absl::Duration stall_timeout_;
  CallParts parts_;
  std::shared_ptr<StreamCall> self_;

  absl::Mutex mutex_;
  EventQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_reader_gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> stall_alarm_ ABSL_GUARDED_BY(mutex_);  // set while paused
  int64_t n_pauses_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stalled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);  // set: nothing more will come
  std::optional<GenerationResult> result_ ABSL_GUARDED_BY(mutex_);
};

// A call of Generate or Score: gathers all results, then answers.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  // `response` lives until gRPC's OnDone.
  static grpc::ServerUnaryReactor* Start(const CallContext& context,
                                         const v1::GenerateRequest& request,
                                         v1::GenerateResponse* response);
  static grpc::ServerUnaryReactor* Start(const CallContext& context,
                                         const v1::ScoreRequest& request,
                                         v1::ScoreResponse* response);

  UnaryCall(const CallContext& context, std::string method) : parts_(context, std::move(method)) {}

  // Answers. The engine's thread calls this once for an admitted request.
  void End(const absl::Status& status, std::optional<GenerationResult> result = {});

 private:
  void OnCancel() override { parts_.link.Cancel(); }
  void OnDone() override;

  CallParts parts_;
  std::shared_ptr<UnaryCall> self_;
  // Both are written before Finish and read after it.
  absl::Status status_;
  std::optional<GenerationResult> result_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_CALLS_H_

#ifndef LOWKEY_SERVER_GRPC_CALLS_H_
#define LOWKEY_SERVER_GRPC_CALLS_H_

#include <grpcpp/grpcpp.h>

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
#include "server/auth/tenant.h"
#include "server/generation.h"
#include "server/grpc/cancel_link.h"
#include "server/grpc/event_queue.h"
#include "server/grpc/live_calls.h"
#include "server/request_log.h"
#include "server/text_service.h"

namespace lowkey {

// Calls that wait for the engine. Each keeps itself alive until gRPC's OnDone; the engine's thread
// holds a reference of its own while it speaks to one.

// When the client gives up; InfiniteFuture when it does not say.
absl::Time DeadlineOf(const grpc::CallbackServerContext& context);

struct CallContext {
  TextService& service;
  std::shared_ptr<LiveCalls> live_calls;
  RequestLog* log = nullptr;
  absl::StatusOr<Tenant> tenant;  // or why the caller may not
  absl::Time deadline = absl::InfiniteFuture();
};

// What the log says of one call.
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

// GenerateStream. Writes one event at a time, in order; the status follows the last.
class StreamCall final : public grpc::ServerWriteReactor<v1::GenerateEvent> {
 public:
  // Starts the request, or finishes the call with its error.
  static grpc::ServerWriteReactor<v1::GenerateEvent>* Start(const CallContext& context,
                                                            const v1::GenerateRequest& request);

  explicit StreamCall(const CallContext& context);

  // From the engine's thread.
  void OnPromptLogprobs(v1::PromptLogprobs logprobs);
  SinkAnswer OnDelta(v1::ChoiceDelta delta);
  void OnEnd(const GenerationResult& result);

 private:
  void OnWriteDone(bool ok) override;
  void OnCancel() override { link_.Cancel(); }
  void OnDone() override;

  void Refuse(const absl::Status& status);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::optional<LiveCalls::Call> live_;  // once admitted
  const CallLog log_;
  CancelLink link_;
  std::shared_ptr<StreamCall> self_;

  absl::Mutex mutex_;
  EventQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_reader_gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_stalled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);  // set: nothing more will come
  std::optional<GenerationResult> result_ ABSL_GUARDED_BY(mutex_);
};

// Generate: gathers everything, then answers.
class UnaryCall final : public grpc::ServerUnaryReactor {
 public:
  // `response` lives until gRPC's OnDone.
  static grpc::ServerUnaryReactor* Start(const CallContext& context,
                                         const v1::GenerateRequest& request,
                                         v1::GenerateResponse* response);

  UnaryCall(const CallContext& context, v1::GenerateResponse* response);

  // From the engine's thread.
  v1::GenerateResponse& response() { return *response_; }
  void OnEnd(const GenerationResult& result);

 private:
  void OnCancel() override { link_.Cancel(); }
  void OnDone() override;

  std::optional<LiveCalls::Call> live_;  // once admitted
  const CallLog log_;
  CancelLink link_;
  v1::GenerateResponse* const response_;
  std::shared_ptr<UnaryCall> self_;
  // Written before Finish, read after it.
  absl::Status status_;
  std::optional<GenerationResult> result_;
};

// Score.
class ScoreCall final : public grpc::ServerUnaryReactor {
 public:
  static grpc::ServerUnaryReactor* Start(const CallContext& context,
                                         const v1::ScoreRequest& request,
                                         v1::ScoreResponse* response);

  explicit ScoreCall(const CallContext& context);

 private:
  void OnCancel() override { link_.Cancel(); }
  void OnDone() override;
  void End(const absl::Status& status);

  std::optional<LiveCalls::Call> live_;  // once admitted
  const CallLog log_;
  CancelLink link_;
  std::shared_ptr<ScoreCall> self_;
  absl::Status status_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_CALLS_H_

#ifndef LOWKEY_SERVER_API_CALLS_CALLS_H_
#define LOWKEY_SERVER_API_CALLS_CALLS_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/base/clock.h"
#include "lowkey/v1/generation.pb.h"
#include "server/api/calls/codec.h"
#include "server/api/calls/event_queue.h"
#include "server/api/calls/live_calls.h"
#include "server/api/calls/request_link.h"
#include "server/log/request_log.h"
#include "server/net/deliveries.h"
#include "server/request/generation.h"
#include "server/rpc/single_request.h"
#include "server/text/text_service.h"

namespace lowkey {

class PausedCalls;

// The calls of every protocol that need the engine share this. Everything must outlive them.
struct GenerationContext {
  TextService& service;
  const RpcWorkers& workers;
  Deliveries& deliveries;
  std::shared_ptr<LiveCalls> live_calls;    // whose clients wait
  std::shared_ptr<LiveCalls> engine_calls;  // that the engine or a worker may still speak to
  std::shared_ptr<PausedCalls> paused_calls;
  RequestLog* log = nullptr;  // null: no log
  absl::Duration stall_timeout = absl::Seconds(60);
  int stream_interval = 1;  // tokens that wait to be sent together, after a stream's first
};

// The state of a call that waits for the engine. Three threads meet here: a worker submits the
// request, the engine delivers results, and the call's loop sends them.
class EngineCall : public std::enable_shared_from_this<EngineCall> {
 public:
  EngineCall(const GenerationContext& context, std::string method, const RpcStream& stream);
  virtual ~EngineCall();

  // On the call's loop: the message is whole. The stream is used from here on.
  void Attach(RpcStream& stream);
  // On the call's loop: the call is over, as the client has its status or is gone. The stream must
  // not be used any more.
  void Detach();

  // On the call's loop: the stream has ended the call with this status, or is told to by it.
  void NoteFinished(const absl::Status& status) { sent_status_ = status; }

  // On the call's loop: sends what has been delivered. A lack of memory ends the call.
  void Advance();

  // On the call's loop: reads a small message and submits its request at once where that takes a
  // few tens of microseconds, as two threads that wake one another can cost milliseconds on cores
  // that compute. Returns false, and leaves the rest to Begin, where it may take longer.
  bool BeginSmall(const std::string& message);

  // On a worker: reads the message, unless BeginSmall has, and submits the request. An error ends
  // the call.
  void Begin(const std::string& message);

  // Ends the call before it was submitted. Does not throw.
  void Refuse(const absl::Status& status);

 protected:
  virtual void Send() = 0;

  // Holds what a message asks for, in the name of the call's tenant; it is submitted once.
  struct Submission {
    bool is_quick = false;  // whether it takes a few tens of microseconds
    std::function<absl::StatusOr<std::vector<RequestId>>()> submit;
  };
  virtual absl::StatusOr<Submission> Read(const std::string& message) = 0;

  // On the call's loop: sends bytes of the answer, if any. Too many of them end the call.
  void WriteAnswer(const std::string& bytes);
  // On the call's loop: sends the status, after everything else.
  void Finish(const absl::Status& status, std::optional<GenerationResult> result);

  // The request's end, from the engine's thread or a worker. May be called again after it threw.
  virtual void SetEnd(const absl::Status& status, std::optional<GenerationResult> result) = 0;

  // From the engine's thread: has the loop call Advance after the engine's delivery.
  void Deliver();

  // Gives the call's tenant and cancellation to its request, and its deadline if it comes before
  // the request's own.
  template <typename Request>
  void SetCaller(Request& request) {
    request.tenant = rpc_.tenant;
    request.deadline = std::min(request.deadline, rpc_.deadline);
    request.is_cancelled = [this] { return link_.is_cancelled(); };
  }

  // At the call's destruction: what the engine's end was that nobody has been told of.
  void NoteUnsent(std::optional<GenerationResult> result);

  const GenerationContext& context_;
  const RpcContext rpc_;
  RequestLink link_;

  RpcStream* stream_ = nullptr;  // of the loop; null before Attach and once nothing may be sent

 private:
  // Sets submission_ and returns true; an error ends the call.
  bool ReadOrRefuse(const std::string& message);
  // Submits submission_; an error ends the call.
  void SubmitOrRefuse();

  EventLoop& loop_;
  const std::string method_;
  const LiveCalls::Call engine_call_;
  const absl::Time start_ = SteadyNow();
  std::optional<Submission> submission_;  // read, and not yet submitted
  // Belong to the loop.
  std::optional<LiveCalls::Call> live_;
  std::optional<absl::Status> sent_status_;   // by the stream
  std::optional<absl::Status> final_status_;  // set once the call has sent it
  std::optional<GenerationResult> final_result_;
  std::optional<RequestLogEntry> due_log_;  // lacks the engine's end, which is still to come
};

// A call whose results are sent in order, the first at once and then every stream_interval tokens
// and at the end; the status follows the last event. Once 256
// tokens wait for the reader the request is paused until fewer than 128 wait; a request that is
// paused for stall_timeout is cancelled and ends with RESOURCE_EXHAUSTED.
class StreamCall final : public EngineCall {
 public:
  StreamCall(const GenerationContext& context, std::string method, const RpcStream& stream,
             std::unique_ptr<GenerationCodec> codec)
      : EngineCall(context, std::move(method), stream), codec_(std::move(codec)) {}
  ~StreamCall() override { NoteUnsent(std::move(result_)); }

  // The engine's thread calls these.
  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs);
  SinkAnswer OnDelta(v1::ChoiceDelta delta);
  void OnEnd(const GenerationResult& result);

  // Any thread: the pause has lasted for stall_timeout if it began before `stalled_since`.
  void EndIfStalled(absl::Time stalled_since);

 private:
  absl::StatusOr<Submission> Read(const std::string& message) override;
  void SetEnd(const absl::Status& status, std::optional<GenerationResult> result) override;
  void Send() override;
  // Returns the oldest event that waits to be sent.
  std::optional<v1::GenerateEvent> TakeEvent();
  void EndPause() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<GenerationCodec> codec_;
  absl::Mutex mutex_;
  std::optional<std::vector<PromptLogprob>> prompt_logprobs_
      ABSL_GUARDED_BY(mutex_);  // come before what queue_ holds
  EventQueue queue_ ABSL_GUARDED_BY(mutex_);
  size_t n_awaited_ ABSL_GUARDED_BY(mutex_) = 1;  // deltas with which the queue is to be sent
  std::optional<absl::Time> paused_ ABSL_GUARDED_BY(mutex_);  // since when
  bool is_stalled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);  // set: nothing more will come
  std::optional<GenerationResult> result_ ABSL_GUARDED_BY(mutex_);
};

// A call that gathers all results, then answers.
class UnaryEngineCall : public EngineCall {
 public:
  using EngineCall::EngineCall;
  ~UnaryEngineCall() override { NoteUnsent(std::move(result_)); }

  void SetEnd(const absl::Status& status, std::optional<GenerationResult> result) override;

 protected:
  void Send() override;

  // Belongs to the engine's thread until SetEnd, then to the loop.
  virtual std::string TakeResponse() = 0;

 private:
  absl::Mutex mutex_;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
  std::optional<GenerationResult> result_ ABSL_GUARDED_BY(mutex_);
};

class GenerateCall final : public UnaryEngineCall {
 public:
  GenerateCall(const GenerationContext& context, std::string method, const RpcStream& stream,
               std::unique_ptr<GenerationCodec> codec)
      : UnaryEngineCall(context, std::move(method), stream), codec_(std::move(codec)) {}

  // The engine's thread calls these, until SetEnd.
  v1::GenerateResponse& response() { return response_; }
  void KeepPromptLogprobs(std::vector<PromptLogprob> logprobs) {
    prompt_logprobs_ = std::move(logprobs);
  }

 private:
  absl::StatusOr<Submission> Read(const std::string& message) override;
  std::string TakeResponse() override;

  const std::unique_ptr<GenerationCodec> codec_;
  v1::GenerateResponse response_;
  std::optional<std::vector<PromptLogprob>> prompt_logprobs_;
};

class ScoreCall final : public UnaryEngineCall {
 public:
  ScoreCall(const GenerationContext& context, std::string method, const RpcStream& stream,
            std::unique_ptr<ScoreCodec> codec)
      : UnaryEngineCall(context, std::move(method), stream), codec_(std::move(codec)) {}

 private:
  absl::StatusOr<Submission> Read(const std::string& message) override;
  std::string TakeResponse() override { return codec_->Write(response_); }

  const std::unique_ptr<ScoreCodec> codec_;
  v1::ScoreResponse response_;
};

// The streams that wait for their readers. Thread-safe.
class PausedCalls {
 public:
  void Add(std::shared_ptr<StreamCall> call);
  // Calls that are not among them are ignored.
  void Remove(const std::shared_ptr<StreamCall>& call);

  // Ends the streams that have waited since `stalled_since` or longer.
  void EndStalled(absl::Time stalled_since);

 private:
  absl::Mutex mutex_;
  std::set<std::shared_ptr<StreamCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

// Make the handlers of one method's calls, each of which gets a codec of its own. `method` names
// them in the log. The context must outlive them.
MakeRpcHandler StreamHandler(const GenerationContext& context, std::string method,
                             MakeGenerationCodec make_codec);
MakeRpcHandler GenerateHandler(const GenerationContext& context, std::string method,
                               MakeGenerationCodec make_codec);
MakeRpcHandler ScoreHandler(const GenerationContext& context, std::string method,
                            MakeScoreCodec make_codec);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_CALLS_CALLS_H_

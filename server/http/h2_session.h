#ifndef LOWKEY_SERVER_HTTP_H2_SESSION_H_
#define LOWKEY_SERVER_HTTP_H2_SESSION_H_

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "server/http/byte_budget.h"
#include "server/http/exchange.h"
#include "server/http/h2_guard.h"
#include "server/http/h2_memory.h"
#include "server/http/h2_stream.h"
#include "server/http/http_date.h"
#include "server/http/limits.h"
#include "server/http/session.h"

namespace lowkey {

// HTTP/2 by nghttp2. Callbacks never end the nghttp2 session: they note a verdict by Fail, and the
// method that is running then writes a GOAWAY of its own, deletes the nghttp2 session and is over.
//
// Frames that nghttp2 has queued are moved to `output_` at once, but for DATA: streams that they
// close are closed then, however slowly the client reads.
class H2Session final : public HttpSession {
 public:
  H2Session(HttpSessionHost& host, const HttpLimits& limits, HttpBudgets& budgets, absl::Time now);
  ~H2Session() override;

  void Receive(std::string_view bytes, absl::Time now) override;
  void ReceiveEnd(absl::Time now) override;
  void Produce(size_t max_bytes, std::string& out, absl::Time now) override;
  void OnTick(absl::Time now) override;
  void BeginDrain() override;
  bool has_told() const override;
  bool wants_input() const override;
  bool has_output() const override;
  bool is_over() const override { return is_over_; }
  size_t n_exchanges() const override { return streams_.size(); }
  bool is_trusted() const override { return is_trusted_; }

  // The session's streams call these.
  HttpSessionHost& host() { return host_; }
  const HttpLimits& limits() const { return limits_; }
  nghttp2_session* nghttp2() { return nghttp2_; }
  absl::Time now() const { return now_; }  // of the latest call that said it
  // Returns the value of an answer's Date field, which is valid until the next call.
  std::string_view date() { return date_.At(now_); }
  bool TakeAnswerBytes(size_t n_bytes);
  void GiveAnswerBytes(size_t n_bytes);
  std::shared_ptr<const HeldBytes> HoldBody(size_t n_bytes);
  void NoteOutput();
  void NoteSent(int32_t stream_id) { sent_streams_.push_back(stream_id); }
  void Trust() { is_trusted_ = true; }
  // Ends the connection if nghttp2 has failed.
  void Check(int nghttp2_result);

  // nghttp2's callbacks, in h2_callbacks.cc. Those with a result return 0 or an error of nghttp2.
  int OnBeginHead(int32_t stream_id);
  int OnField(const nghttp2_frame& frame, std::string_view name, std::string_view value);
  int OnFrame(const nghttp2_frame& frame);
  int OnData(int32_t stream_id, std::string_view bytes);
  void OnInvalidFrame(const nghttp2_frame& frame, int nghttp2_error);
  void OnFrameSent(const nghttp2_frame& frame);
  void OnFrameNotSent(const nghttp2_frame& frame, int nghttp2_error);
  void OnStreamClose(int32_t stream_id);
  int Fail(const H2Verdict& verdict);

 private:
  // Marks that a method of the session runs, so that its output needs no flush.
  class Running;

  int FailIf(const std::optional<H2Verdict>& verdict);
  H2Stream* Find(int32_t stream_id);
  bool FetchFrame();
  void FetchControlFrames();
  void Settle();
  void Finish();
  void AppendGoaway(const H2Verdict& verdict);
  void CheckInput(absl::Time now);
  void CheckOutput(absl::Time now);
  void CheckIdle(absl::Time now);
  void CheckPing(absl::Time now);
  void AdvanceDrain();
  void EndNotice();

  HttpSessionHost& host_;
  const HttpLimits& limits_;
  ByteBudget& answers_;
  const std::shared_ptr<ByteBudget> bodies_;  // that handlers hold
  H2Guard guard_;
  H2Memory memory_;
  struct Deleter {
    void operator()(nghttp2_session* session) const { nghttp2_session_del(session); }
  };
  std::unique_ptr<nghttp2_session, Deleter> owner_;
  nghttp2_session* nghttp2_ = nullptr;  // null once the session is over
  std::unordered_map<int32_t, std::unique_ptr<H2Stream>> streams_;

  std::string output_;                 // frames, the first one maybe in part
  size_t n_unsent_bytes_ = 0;          // of all answers
  std::vector<int32_t> sent_streams_;  // whose handlers are to be told

  std::optional<H2Verdict> verdict_;
  std::optional<NetworkRefusal> library_refusal_;  // why nghttp2 ends the session
  bool is_running_ = false;
  bool is_over_ = false;
  bool is_trusted_ = false;
  bool is_draining_ = false;
  bool is_notice_answered_ = false;
  bool is_last_goaway_submitted_ = false;
  absl::Time notice_at_ = absl::InfiniteFuture();  // the first tick after the drain's

  const absl::Time started_at_;
  absl::Time now_;
  HttpDate date_;
  absl::Time received_at_;                       // bytes
  absl::Time paused_at_ = absl::InfinitePast();  // when no input was wanted
  absl::Time output_at_;                         // bytes left, or none waited
  absl::Time empty_since_;                       // without streams
  absl::Time pinged_at_ = absl::InfinitePast();
  bool awaits_ping_ = false;
};

// The callbacks that hand everything to the H2Session that is the nghttp2 session's user data.
nghttp2_session_callbacks* MakeH2Callbacks();

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_H2_SESSION_H_

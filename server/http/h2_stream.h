#ifndef LOWKEY_SERVER_HTTP_H2_STREAM_H_
#define LOWKEY_SERVER_HTTP_H2_STREAM_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/http/exchange.h"
#include "server/net/refusals.h"

namespace lowkey {

class H2Session;

// One stream of an H2Session, from the begin of its request's head until nghttp2 closes it. The
// methods beyond HttpExchange are called by the session and by nghttp2's callbacks.
class H2Stream final : public HttpExchange {
 public:
  H2Stream(H2Session& session, int32_t id);
  H2Stream(const H2Stream&) = delete;
  H2Stream& operator=(const H2Stream&) = delete;
  ~H2Stream();

  const HttpHead& head() const override { return head_; }
  void AllowBody(size_t n_bytes) override;
  std::shared_ptr<const HeldBytes> HoldBody(size_t n_bytes) override;
  void Start(int status, const HttpFields& fields) override;
  void Write(std::string_view bytes) override;
  void End(const HttpFields& trailers) override;
  void StartAndEnd(int status, const HttpFields& fields) override;
  void Reset(HttpReset reason) override;
  size_t unsent_bytes() const override { return unsent_.size() - n_sent_; }
  void Trust() override;

  // A field of the head, or of the trailers, which are dropped. False: the client sends so many
  // that the connection must end.
  bool AddField(std::string_view name, std::string_view value);
  // Makes the handler, or answers an invalid head.
  void OnHeadEnd(bool has_body);
  void OnBody(std::string_view bytes);
  // The body's window may need more: data or padding has come.
  void OnDataFrame() { ExtendWindow(); }
  void OnBodyEnd();
  bool awaits_body() const { return IsOpen() && !is_body_whole_; }
  // Drops the rest of the body, after the whole answer was sent, for a while and up to a bound:
  // many clients read no answer before they have sent it all, and fail when they are stopped.
  // gRPC's do not, and are stopped at once.
  void DropBody();

  // Copies unsent bytes; nghttp2_data_source_read_callback.
  ssize_t Read(uint8_t* data, size_t n_bytes, uint32_t& flags);
  void OnSent();

  void CheckDeadlines(absl::Time now, absl::Time paused_at);

 private:
  bool IsOpen() const { return !is_reset_ && !has_ended_; }
  bool is_dropping() const { return drops_until_ < absl::InfiniteFuture(); }
  void AddPseudoField(std::string_view name, std::string_view value);
  // 0, or the status that the head must be answered with.
  int HeadError() const;
  void AnswerHeadError(int status);
  void ExtendWindow();
  void RefuseRest();
  void SubmitHead(int status, const HttpFields& fields, bool has_body);
  void SubmitTrailers();
  void Resume();
  void Cut(NetworkRefusal refusal, HttpReset reason);

  H2Session& session_;
  const int32_t id_;
  std::unique_ptr<HttpHandler> handler_;

  HttpHead head_;
  std::string target_;
  size_t n_head_bytes_ = 0;
  size_t n_head_fields_ = 0;
  bool is_head_whole_ = false;
  bool is_head_too_large_ = false;
  bool is_grpc_ = false;
  bool owes_continue_ = false;  // the client waits for it before it sends the body

  uint64_t n_body_bytes_ = 0;     // that have come
  uint64_t n_allowed_bytes_ = 0;  // by AllowBody
  absl::Time allowed_at_ = absl::InfiniteFuture();
  absl::Time body_progress_at_ = absl::InfiniteFuture();
  bool is_body_whole_ = false;
  absl::Time drops_until_ = absl::InfiniteFuture();

  std::string unsent_;  // from n_sent_ on
  size_t n_sent_ = 0;
  absl::Time answer_progress_at_ = absl::InfiniteFuture();
  HttpFields trailers_;
  bool has_started_ = false;
  bool has_ended_ = false;
  bool is_reset_ = false;
  bool is_deferred_ = false;  // nghttp2 waits for nghttp2_session_resume_data
  bool are_trailers_submitted_ = false;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_H2_STREAM_H_

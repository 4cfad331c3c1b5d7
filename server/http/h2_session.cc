#include "server/http/h2_session.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

namespace lowkey {
namespace {

// The data of the ping beside the notice of a drain, and how long its answer is waited for.
constexpr uint8_t kNoticePing[8] = {'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'};
constexpr absl::Duration kNoticeTime = absl::Milliseconds(500);

constexpr size_t kMaxWaitingBytes = 64 << 10;  // of output, beyond which nothing is read
constexpr size_t kMaxQueuedFrames = 1000;
constexpr size_t kLongDebugData = 256;

struct FreeOption {
  void operator()(nghttp2_option* option) const { nghttp2_option_del(option); }
};

nghttp2_session* MakeSession(H2Session* self, H2Memory& memory) {
  static nghttp2_session_callbacks* const callbacks = MakeH2Callbacks();
  nghttp2_option* option = nullptr;
  if (nghttp2_option_new(&option) != 0) throw std::bad_alloc();
  const std::unique_ptr<nghttp2_option, FreeOption> owner(option);
  nghttp2_option_set_no_auto_window_update(option, 1);
  nghttp2_option_set_no_closed_streams(option, 1);
  // The guard counts resets, by the session's clock.
  nghttp2_option_set_stream_reset_rate_limit(option, 1 << 30, 1 << 30);
  nghttp2_session* session = nullptr;
  nghttp2_mem allocator = memory.Allocator();
  if (nghttp2_session_server_new3(&session, callbacks, self, option, &allocator) != 0) {
    throw std::bad_alloc();
  }
  memory.EndOfStart();
  return session;
}

void AppendNumber(uint32_t number, std::string& out) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift));
}

H2Verdict VerdictOf(int nghttp2_error) {
  switch (nghttp2_error) {
    case NGHTTP2_ERR_FLOODED:  // answers to PING and SETTINGS that the client does not read
      return {.refusal = NetworkRefusal::kControlFrames,
              .code = NGHTTP2_ENHANCE_YOUR_CALM,
              .debug_data = "too_many_control_frames"};
    case NGHTTP2_ERR_TOO_MANY_CONTINUATIONS:
      return {.refusal = NetworkRefusal::kHeadSize, .code = NGHTTP2_ENHANCE_YOUR_CALM};
    case NGHTTP2_ERR_NOMEM:
    case NGHTTP2_ERR_CALLBACK_FAILURE:
      return {.code = NGHTTP2_INTERNAL_ERROR};
    default:
      return {.refusal = NetworkRefusal::kBadProtocol, .code = NGHTTP2_PROTOCOL_ERROR};
  }
}

}  // namespace

class H2Session::Running {
 public:
  explicit Running(H2Session& session) : session_(session) { session_.is_running_ = true; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { session_.is_running_ = false; }

 private:
  H2Session& session_;
};

H2Session::H2Session(HttpSessionHost& host, const HttpLimits& limits, HttpBudgets& budgets,
                     absl::Time now)
    : host_(host),
      limits_(limits),
      answers_(budgets.answers),
      bodies_(std::make_shared<ByteBudget>(limits.max_connection_body_bytes, &budgets.bodies)),
      guard_(limits, now),
      owner_(MakeSession(this, memory_)),
      nghttp2_(owner_.get()),
      started_at_(now),
      now_(now),
      received_at_(now),
      output_at_(now),
      empty_since_(now) {
  const Running running(*this);
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits.max_streams},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, limits.stream_window_bytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<uint32_t>(limits.max_head_bytes)},
      {NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1},
  };
  Check(nghttp2_submit_settings(nghttp2_, NGHTTP2_FLAG_NONE, settings, std::size(settings)));
  Check(nghttp2_session_set_local_window_size(
      nghttp2_, NGHTTP2_FLAG_NONE, 0, static_cast<int32_t>(limits.connection_window_bytes)));
  Settle();
}

H2Session::~H2Session() {
  if (!is_over_) Finish();
}

// --- Input and output ---

void H2Session::Receive(std::string_view bytes, absl::Time now) {
  if (is_over_) return;
  const Running running(*this);
  now_ = received_at_ = now;
  if (!verdict_.has_value() && FailIf(guard_.OnInput(bytes, now)) == 0) {
    const ssize_t result = nghttp2_session_mem_recv(
        nghttp2_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    if (result < 0) Fail(VerdictOf(static_cast<int>(result)));
    // Only now: requests that came in one piece with the answer are answered too.
    if (is_notice_answered_ && !verdict_.has_value()) EndNotice();
  }
  Settle();
}

void H2Session::ReceiveEnd(absl::Time now) {
  if (is_over_) return;
  const Running running(*this);
  now_ = now;
  output_.clear();  // nobody reads it
  Finish();
}

void H2Session::Produce(size_t max_bytes, std::string& out, absl::Time now) {
  const Running running(*this);
  now_ = now;
  const size_t n_before = out.size();
  do {
    const size_t n = std::min(output_.size(), max_bytes - std::min(max_bytes, out.size()));
    out.append(output_, 0, n);
    output_.erase(0, n);
  } while (output_.empty() && !is_over_ && FetchFrame());
  if (out.size() > n_before) output_at_ = now;

  std::vector<int32_t> sent = std::exchange(sent_streams_, {});
  std::sort(sent.begin(), sent.end());
  sent.erase(std::unique(sent.begin(), sent.end()), sent.end());
  for (const int32_t id : sent) {
    if (H2Stream* const stream = Find(id); stream != nullptr) stream->OnSent();
  }
  if (verdict_.has_value()) Settle();
}

bool H2Session::FetchFrame() {
  if (verdict_.has_value()) return false;
  const uint8_t* data = nullptr;
  const ssize_t n_bytes = nghttp2_session_mem_send(nghttp2_, &data);
  if (n_bytes < 0) Fail(VerdictOf(static_cast<int>(n_bytes)));
  if (n_bytes <= 0) return false;
  output_.append(reinterpret_cast<const char*>(data), n_bytes);
  return true;
}

void H2Session::FetchControlFrames() {
  if (output_.size() >= kMaxWaitingBytes) return;
  while (nghttp2_session_get_outbound_queue_size(nghttp2_) > 0 && FetchFrame()) {
  }
}

bool H2Session::has_output() const {
  return !output_.empty() ||
         (!is_over_ && (verdict_.has_value() || nghttp2_session_want_write(nghttp2_) != 0));
}

bool H2Session::wants_input() const {
  if (is_over_ || verdict_.has_value()) return false;
  const size_t n_sendable = nghttp2_session_want_write(nghttp2_) != 0 ? n_unsent_bytes_ : 0;
  return output_.size() + n_sendable < kMaxWaitingBytes &&
         nghttp2_session_get_outbound_queue_size(nghttp2_) < kMaxQueuedFrames;
}

// --- The end ---

int H2Session::Fail(const H2Verdict& verdict) {
  if (!verdict_.has_value()) verdict_ = verdict;
  return NGHTTP2_ERR_CALLBACK_FAILURE;
}

int H2Session::FailIf(const std::optional<H2Verdict>& verdict) {
  return verdict.has_value() ? Fail(*verdict) : 0;
}

void H2Session::Check(int nghttp2_result) {
  if (nghttp2_is_fatal(nghttp2_result) == 0) return;
  Fail(VerdictOf(nghttp2_result));
  NoteOutput();
}

// Ends the session if it must end.
void H2Session::Settle() {
  if (is_over_) return;
  if (!verdict_.has_value()) FetchControlFrames();
  if (verdict_.has_value()) {
    if (verdict_->refusal.has_value()) host_.CountRefusal(*verdict_->refusal);
    if (!verdict_->is_said) AppendGoaway(*verdict_);
    Finish();
  } else if (is_last_goaway_submitted_ && streams_.empty() &&
             nghttp2_session_get_outbound_queue_size(nghttp2_) == 0) {
    Finish();
  }
}

void H2Session::Finish() {
  is_over_ = true;
  nghttp2_ = nullptr;
  owner_.reset();
  const auto streams = std::exchange(streams_, {});
}

void H2Session::AppendGoaway(const H2Verdict& verdict) {
  static_assert(kLongDebugData + 8 < (1 << 14));
  const std::string_view debug_data = verdict.debug_data.substr(0, kLongDebugData);
  const uint32_t n_bytes = 8 + static_cast<uint32_t>(debug_data.size());
  AppendNumber(n_bytes << 8 | NGHTTP2_GOAWAY, output_);
  output_.push_back(0);  // flags
  AppendNumber(0, output_);
  AppendNumber(static_cast<uint32_t>(nghttp2_session_get_last_proc_stream_id(nghttp2_)), output_);
  AppendNumber(verdict.code, output_);
  output_.append(debug_data);
}

void H2Session::BeginDrain() {
  if (is_over_ || is_draining_) return;
  const bool was_running = is_running_;
  is_draining_ = true;
  // The ping goes out first: some clients (Python's h2) take none after a GOAWAY.
  Check(nghttp2_submit_ping(nghttp2_, NGHTTP2_FLAG_NONE, kNoticePing));
  Check(nghttp2_submit_shutdown_notice(nghttp2_));
  if (!was_running) {
    const Running running(*this);
    Settle();
  }
}

bool H2Session::has_told() const {
  return is_over_ || (is_last_goaway_submitted_ &&
                      std::none_of(streams_.begin(), streams_.end(),
                                   [](const auto& s) { return s.second->awaits_body(); }));
}

// --- What streams ask for ---

bool H2Session::TakeAnswerBytes(size_t n_bytes) {
  const size_t most = is_trusted_ ? limits_.max_connection_answer_bytes
                                  : std::min(limits_.max_connection_answer_bytes,
                                             limits_.max_stranger_answer_bytes);
  if (n_bytes > most || n_unsent_bytes_ > most - n_bytes ||
      !answers_.Take(static_cast<int64_t>(n_bytes))) {
    return false;
  }
  n_unsent_bytes_ += n_bytes;
  return true;
}

void H2Session::GiveAnswerBytes(size_t n_bytes) {
  n_unsent_bytes_ -= n_bytes;
  answers_.Give(static_cast<int64_t>(n_bytes));
}

std::shared_ptr<const HeldBytes> H2Session::HoldBody(size_t n_bytes) {
  auto held = HeldBytes::Take(bodies_, static_cast<int64_t>(n_bytes));
  if (held == nullptr) host_.CountRefusal(NetworkRefusal::kBodyMemory);
  return held;
}

void H2Session::NoteOutput() {
  if (!is_running_) host_.WantsFlush();
}

H2Stream* H2Session::Find(int32_t stream_id) {
  const auto found = streams_.find(stream_id);
  return found == streams_.end() ? nullptr : found->second.get();
}

// --- What nghttp2 tells ---

int H2Session::OnBeginHead(int32_t stream_id) {
  auto stream = std::make_unique<H2Stream>(*this, stream_id);
  nghttp2_session_set_stream_user_data(nghttp2_, stream_id, stream.get());
  streams_[stream_id] = std::move(stream);
  return 0;
}

int H2Session::OnField(const nghttp2_frame& frame, std::string_view name, std::string_view value) {
  H2Stream* const stream = Find(frame.hd.stream_id);
  if (stream == nullptr || stream->AddField(name, value)) return 0;
  return Fail({.refusal = NetworkRefusal::kHeadSize,
               .code = NGHTTP2_ENHANCE_YOUR_CALM,
               .debug_data = "header_fields_too_large"});
}

int H2Session::OnFrame(const nghttp2_frame& frame) {
  H2Stream* const stream = Find(frame.hd.stream_id);
  const bool is_end = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  switch (frame.hd.type) {
    case NGHTTP2_HEADERS:
      if (stream == nullptr) return 0;
      if (frame.headers.cat == NGHTTP2_HCAT_REQUEST) stream->OnHeadEnd(!is_end);
      if (is_end) stream->OnBodyEnd();
      return 0;
    case NGHTTP2_DATA:
      if (stream == nullptr) return 0;
      if (is_end) {
        stream->OnBodyEnd();
      } else {
        stream->OnDataFrame();
      }
      return 0;
    case NGHTTP2_RST_STREAM:
      return stream == nullptr ? 0 : FailIf(guard_.OnClientReset(now_));
    case NGHTTP2_PING:
      if ((frame.hd.flags & NGHTTP2_FLAG_ACK) == 0) {
        return FailIf(guard_.OnPing(!streams_.empty(), now_));
      }
      awaits_ping_ = false;
      is_notice_answered_ |=
          std::memcmp(frame.ping.opaque_data, kNoticePing, sizeof(kNoticePing)) == 0;
      return 0;
    default:
      return 0;
  }
}

int H2Session::OnData(int32_t stream_id, std::string_view bytes) {
  // The connection's window is for all streams: none of them may hold it.
  Check(nghttp2_session_consume_connection(nghttp2_, bytes.size()));
  if (H2Stream* const stream = Find(stream_id); stream != nullptr) stream->OnBody(bytes);
  return verdict_.has_value() ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
}

void H2Session::OnInvalidFrame(const nghttp2_frame& frame, int nghttp2_error) {
  const bool has_all_streams = streams_.size() >= limits_.max_streams;
  const bool is_request =
      frame.hd.type == NGHTTP2_HEADERS && frame.headers.cat == NGHTTP2_HCAT_REQUEST;
  if (nghttp2_error == NGHTTP2_ERR_REFUSED_STREAM) {
    host_.CountRefusal(NetworkRefusal::kStreams);
  } else if (nghttp2_error == NGHTTP2_ERR_PROTO && is_request && has_all_streams) {
    // The client has acknowledged the limit and exceeds it: nghttp2 ends the connection.
    library_refusal_ = NetworkRefusal::kStreams;
  }
}

void H2Session::OnFrameSent(const nghttp2_frame& frame) {
  switch (frame.hd.type) {
    case NGHTTP2_HEADERS:
      guard_.OnHeadersSent();
      break;
    case NGHTTP2_DATA:
      guard_.OnDataSent();
      break;
    case NGHTTP2_RST_STREAM:
      if (frame.rst_stream.error_code != NGHTTP2_NO_ERROR) FailIf(guard_.OnOurReset(now_));
      return;
    case NGHTTP2_GOAWAY:
      if (frame.goaway.error_code != NGHTTP2_NO_ERROR) {
        Fail({.refusal = library_refusal_.value_or(NetworkRefusal::kBadProtocol),
              .code = frame.goaway.error_code,
              .is_said = true});
      }
      return;
    default:
      return;
  }
  const bool is_end = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (!is_end || nghttp2_session_get_stream_remote_close(nghttp2_, frame.hd.stream_id) != 0) return;
  if (H2Stream* const stream = Find(frame.hd.stream_id); stream != nullptr) stream->DropBody();
}

void H2Session::OnFrameNotSent(const nghttp2_frame& frame, int nghttp2_error) {
  if (frame.hd.type != NGHTTP2_HEADERS || nghttp2_error == NGHTTP2_ERR_STREAM_CLOSED ||
      nghttp2_error == NGHTTP2_ERR_STREAM_CLOSING) {
    return;
  }
  if (H2Stream* const stream = Find(frame.hd.stream_id); stream != nullptr) {
    stream->Reset(HttpReset::kInternalError);  // fields that are too long to be sent
  }
}

void H2Session::OnStreamClose(int32_t stream_id) {
  const auto stream = streams_.extract(stream_id);  // its handler may look at the session
  if (streams_.empty()) empty_since_ = now_;
}

// --- Time ---

void H2Session::OnTick(absl::Time now) {
  if (is_over_) return;
  const Running running(*this);
  now_ = now;
  if (!wants_input()) paused_at_ = now;
  CheckInput(now);
  CheckOutput(now);
  CheckIdle(now);
  CheckPing(now);
  if (!verdict_.has_value()) {
    for (const auto& [id, stream] : streams_) stream->CheckDeadlines(now, paused_at_);
    AdvanceDrain();
  }
  Settle();
}

void H2Session::CheckInput(absl::Time now) {
  const absl::Time began = guard_.has_begun() ? guard_.head_since() : started_at_;
  if (now - std::max(began, paused_at_) > limits_.head_timeout) {
    Fail({.refusal = NetworkRefusal::kHeadTimeout, .code = NGHTTP2_NO_ERROR});
  }
}

void H2Session::CheckOutput(absl::Time now) {
  // Each stream judges by itself how long its data waits for the client's windows.
  if (!has_output()) output_at_ = now;
  if (now - output_at_ > limits_.unread_timeout) {
    Fail({.refusal = NetworkRefusal::kUnreadAnswer, .code = NGHTTP2_NO_ERROR});
  }
}

void H2Session::CheckIdle(absl::Time now) {
  const absl::Duration timeout =
      is_trusted_ ? limits_.h2_idle_timeout : limits_.stranger_idle_timeout;
  if (streams_.empty() && now - empty_since_ > timeout) {
    Fail({.refusal = NetworkRefusal::kIdleTimeout, .code = NGHTTP2_NO_ERROR});
  }
}

void H2Session::CheckPing(absl::Time now) {
  const absl::Time heard_at = std::max(received_at_, paused_at_);
  if (awaits_ping_ && heard_at > pinged_at_) awaits_ping_ = false;  // it lives
  if (awaits_ping_ && now - pinged_at_ > limits_.ping_timeout) {
    Fail({.refusal = NetworkRefusal::kIdleTimeout, .code = NGHTTP2_NO_ERROR});
  }
  if (awaits_ping_ || streams_.empty() || now - heard_at <= limits_.ping_after) return;
  awaits_ping_ = true;
  pinged_at_ = now;
  Check(nghttp2_submit_ping(nghttp2_, NGHTTP2_FLAG_NONE, nullptr));
}

// Says, once, that later requests are not answered. A ping is sent with the notice (RFC 9113, 6.8):
// before its answer come the requests that crossed it.
void H2Session::EndNotice() {
  if (!is_draining_ || is_last_goaway_submitted_) return;
  is_last_goaway_submitted_ = true;
  Check(nghttp2_submit_goaway(nghttp2_, NGHTTP2_FLAG_NONE,
                              nghttp2_session_get_last_proc_stream_id(nghttp2_), NGHTTP2_NO_ERROR,
                              nullptr, 0));
}

void H2Session::AdvanceDrain() {
  if (is_draining_) notice_at_ = std::min(notice_at_, now_);
  if (now_ - notice_at_ >= kNoticeTime) EndNotice();
  if (now_ - started_at_ > limits_.max_age) BeginDrain();
}

std::unique_ptr<HttpSession> MakeHttp2Session(HttpSessionHost& host, const HttpLimits& limits,
                                              HttpBudgets& budgets, absl::Time now) {
  return std::make_unique<H2Session>(host, limits, budgets, now);
}

}  // namespace lowkey

#include "server/http/h2_stream.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/http/h2_session.h"

namespace lowkey {
namespace {

constexpr size_t kFieldOverhead = 32;            // RFC 9113, 6.5.2
constexpr size_t kMaxDecodedBytes = 64 << 10;    // of a stream's fields
constexpr size_t kMaxSentPrefix = 64 << 10;      // sent bytes that a buffer keeps
constexpr uint64_t kMinWindowUpdate = 32 << 10;  // unless the client has less than that left
// Most prompts have fewer bytes, and a client that sends takes no longer. HTTP/1.1 needs less:
// there a client reads the answer when its connection ends.
constexpr uint64_t kMaxDroppedBytes = 1 << 20;
constexpr absl::Duration kDropTime = absl::Seconds(5);
constexpr uint64_t kMaxWindow = std::numeric_limits<int32_t>::max();

nghttp2_nv MakeField(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

void AddFields(const HttpFields& fields, std::vector<nghttp2_nv>& block) {
  for (const HttpField& field : fields) block.push_back(MakeField(field.name, field.value));
}

bool IsContinue(std::string_view expected) {
  return absl::EqualsIgnoreCase(absl::string_view(expected.data(), expected.size()),
                                "100-continue");
}

ssize_t ReadAnswer(nghttp2_session* session, int32_t id, uint8_t* data, size_t n_bytes,
                   uint32_t* flags, nghttp2_data_source*, void* user_data) noexcept {
  auto* stream = static_cast<H2Stream*>(nghttp2_session_get_stream_user_data(session, id));
  if (stream == nullptr) return NGHTTP2_ERR_DEFERRED;
  try {
    return stream->Read(data, n_bytes, *flags);
  } catch (...) {  // out of memory
    return static_cast<H2Session*>(user_data)->Fail({.code = NGHTTP2_INTERNAL_ERROR});
  }
}

bool IsGrpc(std::string_view content_type) {
  constexpr std::string_view kType = "application/grpc";
  if (content_type.substr(0, kType.size()) != kType) return false;
  content_type.remove_prefix(kType.size());
  return content_type.empty() || content_type[0] == '+' || content_type[0] == ';';
}

}  // namespace

H2Stream::H2Stream(H2Session& session, int32_t id) : session_(session), id_(id) {
  head_.is_http2 = true;
}

H2Stream::~H2Stream() {
  handler_.reset();
  session_.GiveAnswerBytes(unsent_bytes());
}

// --- The head ---

bool H2Stream::AddField(std::string_view name, std::string_view value) {
  n_head_bytes_ += name.size() + value.size() + kFieldOverhead;
  if (n_head_bytes_ > kMaxDecodedBytes) return false;
  if (is_head_whole_) return true;
  const HttpLimits& limits = session_.limits();
  if (name == "content-type" && IsGrpc(value)) is_grpc_ = true;
  if (n_head_bytes_ > limits.max_head_bytes || ++n_head_fields_ > limits.max_head_fields) {
    is_head_too_large_ = true;
    return true;
  }
  if (name[0] == ':') {
    AddPseudoField(name, value);
  } else if (name == "host" && head_.authority.empty()) {
    head_.authority = value;
  }
  // nghttp2 compares the body's length with content-length.
  if (name[0] != ':' && name != "content-length") {
    head_.fields.push_back({std::string(name), std::string(value)});
  }
  return true;
}

void H2Stream::AddPseudoField(std::string_view name, std::string_view value) {
  if (name == ":method") head_.method = value;
  if (name == ":authority") head_.authority = value;
  if (name == ":path") target_ = value;
}

int H2Stream::HeadError() const {
  if (is_head_too_large_) return 431;
  if (target_.size() > session_.limits().max_target_bytes) return 414;
  const bool is_asterisk = target_ == "*" && head_.method == "OPTIONS";
  if (!is_asterisk && (target_.empty() || target_[0] != '/')) return 400;
  const std::vector<std::string_view> expected = head_.All("expect");
  const bool is_known = std::all_of(expected.begin(), expected.end(), IsContinue);
  return is_known ? 0 : 417;
}

void H2Stream::AnswerHeadError(int status) {
  const bool is_bad = status == 400 || status == 417;
  session_.host().CountRefusal(is_bad ? NetworkRefusal::kBadProtocol : NetworkRefusal::kHeadSize);
  if (!is_grpc_) return StartAndEnd(status, {});
  // gRPC's codes: INTERNAL and RESOURCE_EXHAUSTED.
  StartAndEnd(200, {{"content-type", "application/grpc"},
                    {"grpc-status", is_bad ? "13" : "8"},
                    {"grpc-message", status == 400   ? "the path is invalid"
                                     : status == 417 ? "the expectation is not 100-continue"
                                     : status == 414 ? "the path is too long"
                                                     : "the metadata are too large"}});
}

void H2Stream::OnHeadEnd(bool has_body) {
  is_head_whole_ = true;
  head_.has_body = has_body;
  if (const int status = HeadError(); status != 0) {
    AnswerHeadError(status);
  } else {
    const size_t mark = std::min(target_.find('?'), target_.size());
    head_.path = target_.substr(0, mark);
    head_.query = target_.substr(std::min(mark + 1, target_.size()));
    owes_continue_ = has_body && !head_.All("expect").empty();
    handler_ = session_.host().MakeHandler(*this);
    handler_->OnHead();
  }
  // Thousands of streams may stay open, with 16 KiB of fields each.
  head_ = HttpHead();
  target_ = std::string();
}

// --- The body ---

void H2Stream::OnBody(std::string_view bytes) {
  n_body_bytes_ += bytes.size();
  body_progress_at_ = session_.now();
  if (n_body_bytes_ >= n_allowed_bytes_) allowed_at_ = absl::InfiniteFuture();
  if (is_dropping() && n_body_bytes_ > n_allowed_bytes_) RefuseRest();
  if (handler_ != nullptr && IsOpen()) handler_->OnBody(bytes);
}

void H2Stream::OnBodyEnd() {
  is_body_whole_ = true;
  if (handler_ != nullptr && IsOpen()) handler_->OnBodyEnd();
}

void H2Stream::AllowBody(size_t n_bytes) {
  if (is_body_whole_ || !IsOpen()) return;
  if (std::exchange(owes_continue_, false) && !has_started_) {
    const nghttp2_nv status = MakeField(":status", "100");
    session_.Check(nghttp2_submit_headers(session_.nghttp2(), NGHTTP2_FLAG_NONE, id_, nullptr,
                                          &status, 1, nullptr));
    session_.NoteOutput();
  }
  const bool did_wait = n_body_bytes_ < n_allowed_bytes_;
  n_allowed_bytes_ += std::min<uint64_t>(n_bytes, kMaxWindow);
  if (!did_wait && n_body_bytes_ < n_allowed_bytes_) {
    allowed_at_ = session_.now();
    body_progress_at_ = session_.now();
  }
  ExtendWindow();
}

void H2Stream::DropBody() {
  handler_.reset();  // with the memory that it holds
  if (is_grpc_) return RefuseRest();
  drops_until_ = session_.now() + kDropTime;
  n_allowed_bytes_ = n_body_bytes_ + kMaxDroppedBytes;
  ExtendWindow();
}

// Asks the client to send no more (RFC 9113, 8.1).
void H2Stream::RefuseRest() {
  drops_until_ = absl::InfiniteFuture();
  session_.Check(
      nghttp2_submit_rst_stream(session_.nghttp2(), NGHTTP2_FLAG_NONE, id_, NGHTTP2_NO_ERROR));
  session_.NoteOutput();
}

std::shared_ptr<const HeldBytes> H2Stream::HoldBody(size_t n_bytes) {
  return session_.HoldBody(n_bytes);
}

// Padding takes of the window too, so that nghttp2 is asked how much the client has left.
void H2Stream::ExtendWindow() {
  if (is_body_whole_ || !(IsOpen() || is_dropping())) return;
  // Until the client has acknowledged our SETTINGS, its window is HTTP/2's own first one.
  const uint64_t granted =
      n_allowed_bytes_ +
      nghttp2_session_get_local_settings(session_.nghttp2(), NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
  const uint64_t wanted = std::min(granted - std::min(granted, n_body_bytes_), kMaxWindow);
  const uint64_t left = nghttp2_session_get_stream_local_window_size(session_.nghttp2(), id_);
  if (wanted <= left || (wanted - left < kMinWindowUpdate && wanted - left < left)) return;
  session_.Check(nghttp2_submit_window_update(session_.nghttp2(), NGHTTP2_FLAG_NONE, id_,
                                              static_cast<int32_t>(wanted - left)));
  session_.NoteOutput();
}

// --- The answer ---

void H2Stream::SubmitHead(int status, const HttpFields& fields, bool has_body) {
  LK_CHECK(!has_started_);
  has_started_ = true;
  const std::string status_text = absl::StrCat(status);
  std::vector<nghttp2_nv> block = {MakeField(":status", status_text)};
  if (!is_grpc_) block.push_back(MakeField("date", session_.date()));
  AddFields(fields, block);
  nghttp2_data_provider provider = {};
  provider.read_callback = ReadAnswer;
  session_.Check(nghttp2_submit_response(session_.nghttp2(), id_, block.data(), block.size(),
                                         has_body ? &provider : nullptr));
  session_.NoteOutput();
}

void H2Stream::Start(int status, const HttpFields& fields) {
  if (IsOpen()) SubmitHead(status, fields, true);
}

void H2Stream::StartAndEnd(int status, const HttpFields& fields) {
  if (!IsOpen()) return;
  SubmitHead(status, fields, false);
  has_ended_ = true;
}

void H2Stream::Write(std::string_view bytes) {
  if (!IsOpen() || bytes.empty()) return;
  LK_CHECK(has_started_);
  // First what may throw.
  unsent_.reserve(unsent_.size() +
                  std::min(bytes.size(), session_.limits().max_connection_answer_bytes));
  if (!session_.TakeAnswerBytes(bytes.size())) {
    return Cut(NetworkRefusal::kAnswerMemory, HttpReset::kEnhanceYourCalm);
  }
  if (unsent_bytes() == 0) answer_progress_at_ = session_.now();
  unsent_.append(bytes);
  Resume();
}

void H2Stream::End(const HttpFields& trailers) {
  if (!IsOpen()) return;
  LK_CHECK(has_started_);
  has_ended_ = true;
  trailers_ = trailers;
  if (unsent_bytes() == 0 && !trailers_.empty()) {
    // No empty DATA frame is needed before them.
    SubmitTrailers();
    session_.NoteOutput();
  } else {
    Resume();
  }
}

void H2Stream::SubmitTrailers() {
  if (are_trailers_submitted_) return;
  are_trailers_submitted_ = true;
  std::vector<nghttp2_nv> block;
  AddFields(trailers_, block);
  session_.Check(nghttp2_submit_trailer(session_.nghttp2(), id_, block.data(), block.size()));
}

void H2Stream::Resume() {
  if (is_deferred_) {
    is_deferred_ = false;
    session_.Check(nghttp2_session_resume_data(session_.nghttp2(), id_));
  }
  session_.NoteOutput();
}

ssize_t H2Stream::Read(uint8_t* data, size_t n_bytes, uint32_t& flags) {
  const size_t n = std::min(n_bytes, unsent_bytes());
  std::memcpy(data, unsent_.data() + n_sent_, n);
  n_sent_ += n;
  if (n_sent_ == unsent_.size()) {
    unsent_.clear();
    if (unsent_.capacity() > kMaxSentPrefix) unsent_.shrink_to_fit();
    n_sent_ = 0;
  } else if (n_sent_ >= kMaxSentPrefix) {
    unsent_.erase(0, std::exchange(n_sent_, 0));
  }
  if (n > 0) {
    answer_progress_at_ = session_.now();
    session_.GiveAnswerBytes(n);
    session_.NoteSent(id_);
  }
  if (has_ended_ && unsent_bytes() == 0 && !are_trailers_submitted_) {
    flags |= NGHTTP2_DATA_FLAG_EOF;
    if (!trailers_.empty()) {
      flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
      SubmitTrailers();
    }
    return static_cast<ssize_t>(n);
  }
  if (n > 0) return static_cast<ssize_t>(n);
  is_deferred_ = true;
  return NGHTTP2_ERR_DEFERRED;
}

void H2Stream::OnSent() {
  if (handler_ != nullptr && !is_reset_) handler_->OnSent();
}

void H2Stream::Reset(HttpReset reason) {
  if (is_reset_) return;
  is_reset_ = true;
  session_.GiveAnswerBytes(unsent_bytes());
  unsent_ = std::string();
  n_sent_ = 0;
  session_.Check(nghttp2_submit_rst_stream(session_.nghttp2(), NGHTTP2_FLAG_NONE, id_,
                                           static_cast<uint32_t>(reason)));
  session_.NoteOutput();
}

void H2Stream::Cut(NetworkRefusal refusal, HttpReset reason) {
  session_.host().CountRefusal(refusal);
  Reset(reason);
}

void H2Stream::Trust() { session_.Trust(); }

void H2Stream::CheckDeadlines(absl::Time now, absl::Time paused_at) {
  if (is_reset_) return;
  if (now > drops_until_) return RefuseRest();
  const HttpLimits& limits = session_.limits();
  if (unsent_bytes() > 0 && now - answer_progress_at_ > limits.unread_timeout) {
    return Cut(NetworkRefusal::kUnreadAnswer, HttpReset::kCancel);
  }
  if (is_body_whole_ || has_ended_ || allowed_at_ == absl::InfiniteFuture()) return;
  // While nothing is read, the client is not late.
  if (now - std::max(body_progress_at_, paused_at) > limits.body_progress_timeout ||
      now - std::max(allowed_at_, paused_at) > limits.body_timeout) {
    Cut(NetworkRefusal::kBodyTimeout, HttpReset::kCancel);
  }
}

}  // namespace lowkey

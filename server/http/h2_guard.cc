#include "server/http/h2_guard.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>

#include "server/http/session.h"

namespace lowkey {
namespace {

constexpr int kMaxStrikes = 3;
// Tokens that a frame of data brings: its receiver may answer with PING and WINDOW_UPDATE.
constexpr double kTokensPerData = 2;

H2Verdict Calm(NetworkRefusal refusal, std::string_view debug_data) {
  return {.refusal = refusal, .code = NGHTTP2_ENHANCE_YOUR_CALM, .debug_data = debug_data};
}

}  // namespace

bool TokenBucket::Take(absl::Time now) {
  if (now > filled_at_) {
    Give(absl::ToDoubleSeconds(now - filled_at_) * rate_.per_second);
    filled_at_ = now;
  }
  if (n_tokens_ < 1) return false;
  n_tokens_ -= 1;
  return true;
}

void TokenBucket::Give(double n_tokens) { n_tokens_ = std::min(n_tokens_ + n_tokens, rate_.burst); }

H2Guard::H2Guard(const HttpLimits& limits, absl::Time now)
    : limits_(limits),
      client_resets_(limits.client_resets, now),
      our_resets_(limits.our_resets, now),
      control_frames_(limits.control_frames, now),
      payload_left_(kHttp2Preface.size()) {}

std::optional<H2Verdict> H2Guard::OnInput(std::string_view bytes, absl::Time now) {
  while (!bytes.empty()) {
    if (payload_left_ > 0) {
      const size_t n = std::min(payload_left_, bytes.size());
      bytes.remove_prefix(n);
      payload_left_ -= n;
      if (payload_left_ == 0) OnFrameEnd();
      continue;
    }
    const size_t n = std::min(kHeaderBytes - n_header_bytes_, bytes.size());
    std::copy_n(bytes.begin(), n, header_.begin() + n_header_bytes_);
    bytes.remove_prefix(n);
    n_header_bytes_ += n;
    if (n_header_bytes_ < kHeaderBytes) break;
    if (auto verdict = OnFrame(now); verdict.has_value()) return verdict;
    if (payload_left_ == 0) OnFrameEnd();
  }
  return std::nullopt;
}

std::optional<H2Verdict> H2Guard::OnFrame(absl::Time now) {
  payload_left_ = size_t{header_[0]} << 16 | size_t{header_[1]} << 8 | header_[2];
  const int type = header_[3], flags = header_[4];
  const uint32_t stream = (uint32_t{header_[5]} << 24 | uint32_t{header_[6]} << 16 |
                           uint32_t{header_[7]} << 8 | header_[8]) &
                          0x7fffffff;
  bool carries_nothing = true;
  if (type == NGHTTP2_DATA) {
    carries_nothing = payload_left_ == 0 && (flags & NGHTTP2_FLAG_END_STREAM) == 0;
    // Of a padded frame only nghttp2 knows whether it carries data.
    if (payload_left_ > 0 && (flags & NGHTTP2_FLAG_PADDED) == 0) {
      control_frames_.Give(kTokensPerData);
    }
  } else if (type == NGHTTP2_HEADERS) {
    carries_nothing = stream <= last_stream_;  // trailers, or fields of a closed stream
    last_stream_ = std::max(last_stream_, stream);
    head_since_ = now;
  }
  is_block_end_ = (type == NGHTTP2_HEADERS || type == NGHTTP2_CONTINUATION) &&
                  (flags & NGHTTP2_FLAG_END_HEADERS) != 0;
  if (carries_nothing && !control_frames_.Take(now)) {
    return Calm(NetworkRefusal::kControlFrames, "too_many_control_frames");
  }
  return std::nullopt;
}

void H2Guard::OnFrameEnd() {
  has_begun_ = n_header_bytes_ > 0;  // the preface has none
  n_header_bytes_ = 0;
  if (is_block_end_) head_since_ = absl::InfiniteFuture();
}

std::optional<H2Verdict> H2Guard::OnClientReset(absl::Time now) {
  if (client_resets_.Take(now)) return std::nullopt;
  return Calm(NetworkRefusal::kResets, "too_many_resets");
}

std::optional<H2Verdict> H2Guard::OnOurReset(absl::Time now) {
  if (our_resets_.Take(now)) return std::nullopt;
  return Calm(NetworkRefusal::kResets, "too_many_resets");
}

std::optional<H2Verdict> H2Guard::OnPing(bool has_streams, absl::Time now) {
  const absl::Duration interval =
      has_streams ? limits_.min_ping_interval : limits_.min_idle_ping_interval;
  if (now - last_ping_ < interval) ++n_strikes_;
  last_ping_ = now;
  if (n_strikes_ < kMaxStrikes) return std::nullopt;
  return Calm(NetworkRefusal::kPings, "too_many_pings");
}

void H2Guard::OnHeadersSent() {
  n_strikes_ = 0;
  last_ping_ = absl::InfinitePast();
}

void H2Guard::OnDataSent() {
  OnHeadersSent();
  control_frames_.Give(kTokensPerData);
}

}  // namespace lowkey

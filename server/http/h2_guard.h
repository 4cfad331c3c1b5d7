#ifndef LOWKEY_SERVER_HTTP_H2_GUARD_H_
#define LOWKEY_SERVER_HTTP_H2_GUARD_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "server/http/limits.h"
#include "server/net/refusals.h"

namespace lowkey {

// Why an HTTP/2 connection ends: what its GOAWAY says, and what is counted.
struct H2Verdict {
  std::optional<NetworkRefusal> refusal = {};
  uint32_t code = 0;                 // of the GOAWAY frame
  std::string_view debug_data = {};  // of the GOAWAY frame; a literal
  bool is_said = false;              // the output holds a GOAWAY frame already
};

// Holds tokens: at first and at most `burst`; each second brings `per_second`.
class TokenBucket {
 public:
  TokenBucket(HttpLimits::Rate rate, absl::Time now)
      : rate_(rate), n_tokens_(rate.burst), filled_at_(now) {}

  // False if no token is left.
  bool Take(absl::Time now);
  void Give(double n_tokens);

 private:
  HttpLimits::Rate rate_;
  double n_tokens_;
  absl::Time filled_at_;
};

// Judges how a client uses its HTTP/2 connection. It reads the headers of all frames itself,
// because nghttp2 does not report the frames that it ignores.
class H2Guard {
 public:
  H2Guard(const HttpLimits& limits, absl::Time now);

  // Takes the client's bytes, from the preface on, before nghttp2 does. A result is the end.
  std::optional<H2Verdict> OnInput(std::string_view bytes, absl::Time now);
  // The client has reset a stream that was open.
  std::optional<H2Verdict> OnClientReset(absl::Time now);
  // The server resets a stream, or refuses to open it.
  std::optional<H2Verdict> OnOurReset(absl::Time now);
  // A PING without ACK has come.
  std::optional<H2Verdict> OnPing(bool has_streams, absl::Time now);

  // HEADERS have been sent.
  void OnHeadersSent();
  // DATA have been sent.
  void OnDataSent();

  // Returns when the header block began that is not whole yet; InfiniteFuture without one.
  absl::Time head_since() const { return head_since_; }
  // Returns whether the client's preface and its first frame are whole.
  bool has_begun() const { return has_begun_; }

 private:
  static constexpr size_t kHeaderBytes = 9;  // of a frame

  std::optional<H2Verdict> OnFrame(absl::Time now);
  void OnFrameEnd();

  const HttpLimits& limits_;
  TokenBucket client_resets_, our_resets_, control_frames_;

  size_t payload_left_;  // of the frame, or the preface
  std::array<unsigned char, kHeaderBytes> header_ = {};
  size_t n_header_bytes_ = 0;
  uint32_t last_stream_ = 0;  // the highest that HEADERS have named
  bool is_block_end_ = false;
  bool has_begun_ = false;
  absl::Time head_since_ = absl::InfiniteFuture();

  absl::Time last_ping_ = absl::InfinitePast();
  int n_strikes_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_H2_GUARD_H_

#ifndef LOWKEY_SERVER_HTTP_LIMITS_H_
#define LOWKEY_SERVER_HTTP_LIMITS_H_

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace lowkey {

// HttpLimits says what one client may take of the server, from the first byte on.
struct HttpLimits {
  // A request's head: bytes of names and values, with 32 for each field as HTTP/2 counts them.
  size_t max_head_bytes = 16 << 10;
  size_t max_head_fields = 100;
  size_t max_target_bytes = 8 << 10;

  absl::Duration head_timeout = absl::Seconds(10);
  absl::Duration body_progress_timeout = absl::Seconds(10);  // without a byte that was allowed
  absl::Duration body_timeout = absl::Seconds(120);
  absl::Duration h1_idle_timeout = absl::Seconds(75);
  absl::Duration h2_idle_timeout = absl::Seconds(300);
  // Until the connection's first request with valid credentials.
  absl::Duration stranger_idle_timeout = absl::Seconds(30);
  absl::Duration unread_timeout = absl::Seconds(60);  // output waits and none leaves
  absl::Duration max_age = absl::InfiniteDuration();  // then the connection drains

  // HTTP/2 alone.
  uint32_t max_streams = 100;
  uint32_t stream_window_bytes = 64 << 10;
  uint32_t connection_window_bytes = 1 << 20;
  // Tokens of a bucket that fills by so many a second.
  struct Rate {
    double burst, per_second;
  };
  Rate client_resets = {1000, 33};
  Rate our_resets = {1000, 100};      // streams that we refuse or reset
  Rate control_frames = {2000, 100};  // PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, ...
  absl::Duration min_ping_interval = absl::Seconds(10);       // with streams
  absl::Duration min_idle_ping_interval = absl::Seconds(60);  // without
  absl::Duration ping_after = absl::Seconds(30);  // of silence with open streams, we send one
  absl::Duration ping_timeout = absl::Seconds(20);

  size_t max_connection_body_bytes = 8 << 20;  // that handlers hold
  size_t max_connection_answer_bytes = 16 << 20;
  // Bounds a connection before its first request with valid credentials, to a few pages.
  size_t max_stranger_answer_bytes = 256 << 10;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_LIMITS_H_

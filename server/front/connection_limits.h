#ifndef LOWKEY_SERVER_FRONT_CONNECTION_LIMITS_H_
#define LOWKEY_SERVER_FRONT_CONNECTION_LIMITS_H_

#include "absl/time/time.h"
#include "server/http/limits.h"

namespace lowkey {

// The limits before a connection's first request.
struct ConnectionLimits {
  HttpLimits http;
  absl::Duration handshake_timeout = absl::Seconds(10);
  int max_handshakes = 256;  // of TLS, at once on a loop; more wait for their turn
  absl::Duration crowded_handshake_timeout = absl::Seconds(1);  // while some wait
  absl::Duration first_byte_timeout = absl::Seconds(10);
  // The time that a connection whose last byte is written waits for the client to close it: closing
  // at once could destroy what the client has not read.
  absl::Duration linger = absl::Seconds(2);
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_CONNECTION_LIMITS_H_

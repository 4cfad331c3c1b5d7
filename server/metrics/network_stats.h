#ifndef LOWKEY_SERVER_METRICS_NETWORK_STATS_H_
#define LOWKEY_SERVER_METRICS_NETWORK_STATS_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace lowkey {

// NetworkStats says what the connections of a port do now. Counts may be 100 ms old.
struct NetworkStats {
  // Connections that speak HTTP/1.1, that speak HTTP/2, and that have not shown yet which.
  int64_t n_http1 = 0, n_http2 = 0, n_undecided = 0;
  int64_t n_opened = 0;   // connections since the start
  int64_t n_streams = 0;  // requests that have begun and are not answered to the end
  // Memory of requests that come or wait to be read, and of answers that wait for their readers.
  int64_t body_bytes = 0, answer_bytes = 0;
  int64_t n_waiting_work = 0;                                // messages that wait for a worker
  std::optional<absl::Time> certificate_end = std::nullopt;  // of the certificate in use
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_METRICS_NETWORK_STATS_H_

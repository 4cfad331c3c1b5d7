#ifndef LOWKEY_CLIENT_LOAD_RUN_POINT_H_
#define LOWKEY_CLIENT_LOAD_RUN_POINT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/synchronization/notification.h"
#include "client/load/load_target.h"
#include "client/load/workload.h"

namespace lowkey {

// One point of a sweep: open loop (requests arrive when they arrive) or closed loop (so many are
// always running).
struct PointOptions {
  std::vector<double> arrivals_s = {};   // open loop; ascending, one per request
  int32_t concurrency = 0;               // closed loop, where there are no arrivals; 1 or more
  int64_t n_requests = 0;                // warm-up included
  int64_t n_warmup = 0;                  // the first ones, marked in the records
  double duration_s = 1e9;               // no request begins later
  std::optional<double> timeout_s = {};  // each request's deadline, from its beginning
  int64_t point = 0;                     // place in the sweep, as Workload::At takes it
};

// A request as it was planned and as it went. Times are from the point's beginning.
struct RequestRecord {
  size_t mix_index = 0;
  int32_t n_prompt_tokens = 0;
  bool is_cut = false, is_warmup = false;
  double due_s = 0;  // when it should have begun: the arrival, or in a closed loop when it did
  StreamRecord stream;
};

// What the generator itself took, and how late it was.
struct GeneratorUse {
  double cpu_cores = 0;          // processor time over wall time
  std::vector<double> lags_ms;   // start of a request less its arrival; empty in a closed loop
  std::vector<double> wakes_ms;  // how late a sleeping thread woke
};

struct ServerPeak {
  int64_t n_running = 0, n_waiting = 0;
  int64_t cache_bytes_used = 0, cache_bytes_total = 0;
};

struct PointRun {
  std::vector<RequestRecord> records;  // in order of their end
  GeneratorUse generator;
  std::optional<ServerPeak> server;  // absent when the server told nothing
};

struct PointProgress {
  int64_t n_ended = 0, n_total = 0, n_in_flight = 0, n_failed = 0;
  double elapsed_s = 0;
  double tokens_per_s = 0;             // since the last report
  std::optional<double> ttft_ms = {};  // mean of those that ended since
};

// Runs one point to its end, whatever becomes of its requests. `on_progress` is called some five
// times a second from another thread. Once `cancelled` is notified no request begins any more; who
// notifies also cancels the target, so that those under way end.
PointRun RunPoint(const Workload& workload, const PointOptions& options, LoadTarget& target,
                  const absl::Notification& cancelled,
                  const std::function<void(const PointProgress&)>& on_progress);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_RUN_POINT_H_

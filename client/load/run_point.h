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

// One point of a sweep: an open loop (requests arrive at given times) or a closed loop (a fixed
// number of requests is always running).
struct PointOptions {
  std::vector<double> arrivals_s = {};   // of an open loop; ascending, one per request
  int32_t concurrency = 0;               // of a closed loop (no arrivals); 1 or more
  int64_t n_requests = 0;                // warm-up included
  int64_t n_warmup = 0;                  // the first requests, marked in the records
  double duration_s = 1e9;               // no request begins later
  std::optional<double> timeout_s = {};  // each request's deadline, from its beginning
  int64_t point = 0;                     // place in the sweep, as Workload::At takes it
};

// A request's plan and outcome. Times count from the point's beginning.
struct RequestRecord {
  size_t mix_index = 0;
  int32_t n_prompt_tokens = 0;
  bool is_cut = false, is_warmup = false;
  double due_s = 0;  // the arrival; in a closed loop the actual beginning
  StreamRecord stream;
};

// The generator's own processor use and lateness.
struct GeneratorUse {
  double cpu_cores = 0;          // processor time over wall time
  std::vector<double> lags_ms;   // start of a request less its arrival; empty in a closed loop
  std::vector<double> wakes_ms;  // how late a sleeping thread woke
};

struct PointRun {
  std::vector<RequestRecord> records;  // in the order of their ends
  GeneratorUse generator;
  std::optional<ServerLoad> server;  // its peak; absent if the server did not answer
};

struct PointProgress {
  int64_t n_ended = 0, n_total = 0, n_in_flight = 0, n_failed = 0;
  double elapsed_s = 0;
  double tokens_per_s = 0;             // since the last report
  std::optional<double> ttft_ms = {};  // mean over requests that ended since
};

// Runs one point to its end, also if requests fail. `on_progress` is called about five times a
// second from another thread. No request begins after `cancelled` is notified; the notifier also
// cancels the target, so that running requests end.
PointRun RunPoint(const Workload& workload, const PointOptions& options, LoadTarget& target,
                  const absl::Notification& cancelled,
                  const std::function<void(const PointProgress&)>& on_progress);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_RUN_POINT_H_

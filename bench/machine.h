#ifndef LOWKEY_BENCH_MACHINE_H_
#define LOWKEY_BENCH_MACHINE_H_

#include "absl/status/statusor.h"

namespace lowkey {

// The limits of this machine, measured now: figures are stated as shares of these.
struct MachineLimits {
  int n_threads = 0;
  double peak_flops = 0;             // fp32 multiply and add, all threads, registers alone
  double read_bytes_per_second = 0;  // all threads, each streaming its own part of 512 MiB
};

// Best of several runs each, about a second. RESOURCE_EXHAUSTED when 512 MiB cannot be had.
absl::StatusOr<MachineLimits> MeasureMachine(int n_threads);

}  // namespace lowkey

#endif  // LOWKEY_BENCH_MACHINE_H_

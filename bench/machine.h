#ifndef LOWKEY_BENCH_MACHINE_H_
#define LOWKEY_BENCH_MACHINE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/buffer.h"
#include "engine/base/threads/thread_pool.h"

namespace lowkey {

// The limits of this machine, measured now: figures are stated as shares of these.
struct MachineLimits {
  int n_threads = 0;
  double peak_flops = 0;             // fp32 multiply and add, all threads, registers alone
  double read_bytes_per_second = 0;  // all threads, each streaming its own part of 512 MiB
};

// Best of several runs each, about a second. RESOURCE_EXHAUSTED when 512 MiB cannot be had.
absl::StatusOr<MachineLimits> MeasureMachine(int n_threads);

// Reads a buffer of floats, each thread a part of its own, but for less than a kibibyte of each.
// Returns the bytes read.
int64_t ReadThrough(const Buffer& buffer, ThreadPool& pool);

}  // namespace lowkey

#endif  // LOWKEY_BENCH_MACHINE_H_

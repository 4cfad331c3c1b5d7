#ifndef LOWKEY_BENCH_TAYLORSHIFT_BENCH_H_
#define LOWKEY_BENCH_TAYLORSHIFT_BENCH_H_

#include "absl/status/status.h"
#include "bench/machine.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

struct TaylorBenchOptions {
  MachineLimits limits;  // and its number of threads
  StorageType cache_type = StorageType::kBFloat16;
  int n_runs = 5;  // figures are the fastest run's: others may share the machine
};

// Prints time against length of taylorshift's direct and recurrent form, prefill and decode, for
// heads of 16, 32 and 64 (12 heads, 12 layers), and where they cross: measured, by the formulas,
// and by the formulas at the rates that each form reaches. RESOURCE_EXHAUSTED when memory cannot be
// had.
absl::Status BenchTaylorShift(const TaylorBenchOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_BENCH_TAYLORSHIFT_BENCH_H_

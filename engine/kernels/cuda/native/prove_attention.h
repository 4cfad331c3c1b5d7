#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PROVE_ATTENTION_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PROVE_ATTENTION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

// Attends to random numbers by warpgroups and by tensor tiles, on a device that has both, and
// returns whether all results have the same bits: a prompt's row must be what the same row is when
// it is computed alone. Takes a few megabytes; waits. head_dim: 64 or 128.
absl::StatusOr<bool> WarpgroupsAttendAsTilesDo(Device& device, int64_t head_dim);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_PROVE_ATTENTION_H_

#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_WEIGHT_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_WEIGHT_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/tensor.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// Returns `parts` ([n_out_i, n_in] each, same n_in) stacked along n_out: all rows of a weight of 8
// bits in the layout of narrow_weight.h; the same bytes for any number of threads.
std::vector<std::byte> NarrowWeight(absl::Span<const TensorView> parts, StorageType type,
                                    ThreadPool& pool);

// Makes a weight of any type on a device, row-major or as NarrowWeight has it: stacks `parts`
// ([n_out_i, n_in] each, same n_in, any dtype that LoadRow reads) along n_out. RESOURCE_EXHAUSTED
// when the memory cannot be had; otherwise the device's error.
absl::StatusOr<std::unique_ptr<DeviceWeight>> MakeDeviceWeight(absl::Span<const TensorView> parts,
                                                               StorageType type, ThreadPool& pool,
                                                               Device& device);

// Makes a weight of `gate` and `up` ([n_channels, n_in] both) for GatedProductArgs: row 16 i + j is
// row 8 i + j of `gate` for j < 8, and row 8 i + j - 8 of `up` for the others; zeros follow the
// last channel. Errors as above.
absl::StatusOr<std::unique_ptr<DeviceWeight>> MakeGatedWeight(const TensorView& gate,
                                                              const TensorView& up,
                                                              StorageType type, ThreadPool& pool,
                                                              Device& device);
// Returns the bias of such a weight, empty where both are.
std::vector<float> GatedBias(const std::vector<float>& gate, const std::vector<float>& up);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_WEIGHT_H_

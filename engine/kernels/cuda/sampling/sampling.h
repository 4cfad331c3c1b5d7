#ifndef LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_SAMPLING_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_SAMPLING_H_

#include "engine/kernels/device/device.h"
#include "engine/kernels/device/sampling.h"

namespace lowkey {

// Functions of DeviceKernels that launch the kernels of this folder.
void SampleOnDevice(Device& device, const SamplingArgs& args);
void TakeDrawnOnDevice(Device& device, const TakeDrawnArgs& args);
void CountDrawnOnDevice(Device& device, const CountDrawnArgs& args);

// The data that the steps of a call share: for each row n_blocks numbers, one per block of
// kSumBlock ids, and a weight per id.
struct SamplingWork {
  SamplingArgs a;
  int64_t n_blocks = 0;
  double* sums = nullptr;          // sums of weights
  double* raw_sums = nullptr;      // sums of exp(logit - max) of the raw logits
  uint64_t* fixed_sums = nullptr;  // sums of FixedWeight, for top_p
  int32_t* raw_keys = nullptr;     // the largest NormalKey of the raw logits; NaN stands out
  int32_t* keys = nullptr;         // the same after adjustments, for rows that have some
  int32_t* heaviest = nullptr;     // the bits of the largest weight
  float* weights = nullptr;        // the adjusted logits at first
};

// Queues the draw of each row's token from keys and weights (draw.cu).
void QueueDraws(Device& device, const SamplingWork& work);
// Queues the reports of rows (report.cu).
void QueueReports(Device& device, const SamplingWork& work);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_SAMPLING_H_

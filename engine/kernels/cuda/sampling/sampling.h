#ifndef LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_SAMPLING_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_SAMPLING_H_

#include "engine/kernels/device/device.h"
#include "engine/kernels/device/sampling.h"

namespace lowkey {

// Launchers of DeviceKernels.
void SampleOnDevice(Device& device, const SamplingArgs& args);
void TakeDrawnOnDevice(Device& device, const TakeDrawnArgs& args);
void CountDrawnOnDevice(Device& device, const CountDrawnArgs& args);

// The steps of a call, and what they leave for each other: for each row n_blocks numbers, one for
// each block of kSumBlock ids, and a weight for each id.
struct SamplingWork {
  SamplingArgs a;
  int64_t n_blocks = 0;
  double* sums = nullptr;          // of weights
  double* raw_sums = nullptr;      // of exp(logit - max) of the logits as they came
  uint64_t* fixed_sums = nullptr;  // of FixedWeight; where there is top_p
  int32_t* raw_keys = nullptr;     // the largest NormalKey, as they came; NaN: that of a NaN
  int32_t* keys = nullptr;         // the same after adjustments, where there are some
  int32_t* heaviest = nullptr;     // the largest weight's bits
  float* weights = nullptr;        // before that, the adjusted logits
};

// sampling_draw.cu: the token of each row, from keys and weights.
void QueueDraws(Device& device, const SamplingWork& work);
// sampling_report.cu: what rows report.
void QueueReports(Device& device, const SamplingWork& work);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_SAMPLING_SAMPLING_H_

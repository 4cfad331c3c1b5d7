#ifndef LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_GATE_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_GATE_H_

#include "engine/kernels/cuda/grid/grid.h"

namespace lowkey {

// Returns silu(gate) * up.
__device__ inline float SiluTimes(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_PRODUCTS_GATE_H_

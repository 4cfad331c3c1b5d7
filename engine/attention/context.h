#ifndef LOWKEY_ENGINE_ATTENTION_CONTEXT_H_
#define LOWKEY_ENGINE_ATTENTION_CONTEXT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/attention/geometry.h"
#include "engine/base/tensor.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/cache/cache.h"
#include "engine/config/attention_options.h"
#include "engine/kernels/device/device.h"

namespace lowkey {

struct PrincipalCodes;  // principal_codes.h

// Holds what a model brings for one mechanism beside projections (loader/bundle.h).
struct MechanismWeights {
  // [key_dim / 2], angle a position: for keys that are rotated where they are read.
  std::vector<double> inverse_frequencies;
  Mechanism over = Mechanism::kEfficient;  // super: whose keys and values are aligned
  int64_t alignment_tokens = 0;            // super: the longest sequence, l
  std::vector<TensorView> alignment;       // super: by layer, [l (l + 1) / 2] packed rows of Wa
  LassoOptions lasso;
  std::vector<float> tau;  // taylorshift: temperatures [n_layers, n_heads], or none
  // taylorshift: the temperatures of tokens in the window, or none: they are tau.
  std::vector<float> tau_window;
  int64_t window_tokens = 0;  // taylorshift: of exact weights, a multiple of 64; 0: none
  // taylorshift: the variant that the weights were trained for, if the model says.
  std::optional<TaylorVariant> trained_variant;
};

// The place of attention that the host does not compute. The context's cache then lies in the
// memory of the device.
struct DevicePlace {
  Device* device = nullptr;
  Cache* host_cache = nullptr;  // for mechanisms that the device has no kernels for
  int64_t max_rows = 0;         // in a step
};

// Holds what the mechanisms of a model share. Everything it points to outlives them.
struct AttentionContext {
  AttentionGeometry geometry;
  Cache* cache = nullptr;
  ThreadPool* pool = nullptr;
  const MechanismWeights* weights = nullptr;  // nullptr: the model brings none
  const DevicePlace* place = nullptr;         // nullptr: the host
  const PrincipalCodes* codes = nullptr;      // nullptr: the model was not calibrated
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_CONTEXT_H_

#ifndef LOWKEY_ENGINE_MODEL_ROPE_H_
#define LOWKEY_ENGINE_MODEL_ROPE_H_

#include <vector>

#include "engine/config/model_config.h"

namespace lowkey {

// Angle per position of each pair of a head [head_dim / 2], rope scaling included: theta^(-2j /
// head_dim), divided by the factor (linear), by its own factor (given factors) or, by wavelength,
// kept, divided or blended (llama3).
std::vector<double> RopeInverseFrequencies(const ModelConfig& config);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_MODEL_ROPE_H_

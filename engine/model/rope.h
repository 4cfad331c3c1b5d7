#ifndef LOWKEY_ENGINE_MODEL_ROPE_H_
#define LOWKEY_ENGINE_MODEL_ROPE_H_

#include <vector>

#include "engine/config/model_config.h"

namespace lowkey {

// Returns the angle per position of each pair of a key [key_dim / 2]: theta^(-2j / key_dim),
// scaled: divided by the factor (linear), by the pair's own factor (given factors) or, depending on
// the wavelength, kept, divided or blended (llama3).
std::vector<double> RopeInverseFrequencies(const ModelConfig& config);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_MODEL_ROPE_H_

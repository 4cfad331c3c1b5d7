#include "engine/model/rope.h"

#include <cmath>
#include <numbers>

namespace lowkey {
namespace {

double Llama3Scaled(double frequency, const RopeLlama3& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double turns = s.original_max_position_embeddings / wavelength;
  if (turns > s.high_freq_factor) return frequency;
  if (turns < s.low_freq_factor) return frequency / s.factor;
  const double blend = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - blend) * frequency / s.factor + blend * frequency;
}

}  // namespace

std::vector<double> RopeInverseFrequencies(const ModelConfig& config) {
  std::vector<double> out(config.key_dim() / 2);
  for (size_t j = 0; j < out.size(); ++j) {
    const double exponent = -2.0 * static_cast<double>(j) / config.key_dim();
    double frequency = std::pow(config.rope_theta, exponent);
    if (const auto* linear = std::get_if<RopeLinear>(&config.rope_scaling)) {
      frequency /= linear->factor;
    } else if (const auto* llama3 = std::get_if<RopeLlama3>(&config.rope_scaling)) {
      frequency = Llama3Scaled(frequency, *llama3);
    } else if (const auto* given = std::get_if<RopeFactors>(&config.rope_scaling)) {
      frequency /= given->factors[j];
    }
    out[j] = frequency;
  }
  return out;
}

}  // namespace lowkey

#include "engine/runtime/quantization/input_moments.h"

#include <algorithm>

namespace lowkey {
namespace {

constexpr LinearInput kInputs[] = {LinearInput::kQkv, LinearInput::kOutput, LinearInput::kGateUp,
                                   LinearInput::kDown};

}  // namespace

int64_t InputDim(const ModelConfig& config, LinearInput input) {
  switch (input) {
    case LinearInput::kQkv:
    case LinearInput::kGateUp:
      return config.hidden_dim;
    case LinearInput::kOutput:
      return int64_t{config.n_heads} * config.head_dim;
    case LinearInput::kDown:
      return config.ffn_dim;
  }
  return 0;
}

int64_t InputMoments::LayerBytes(const ModelConfig& config) {
  int64_t total = 0;
  for (const LinearInput input : kInputs) {
    const int64_t dim = InputDim(config, input);
    total += dim * dim * static_cast<int64_t>(sizeof(double));
  }
  return total;
}

InputMoments::InputMoments(const ModelConfig& config, int64_t first_layer, int64_t end_layer) {
  for (int64_t layer = first_layer; layer < end_layer; ++layer) {
    for (const LinearInput input : kInputs) {
      moments_.emplace(std::pair(layer, input), Moments(InputDim(config, input)));
    }
  }
}

void InputMoments::Add(int64_t layer, LinearInput input, const float* x, int64_t ld, int64_t n_rows,
                       ThreadPool& pool) {
  const auto found = moments_.find({layer, input});
  if (found == moments_.end()) return;
  Moments& moments = found->second;
  rows_.resize(n_rows * moments.dim());
  for (int64_t i = 0; i < n_rows; ++i) {
    std::copy_n(x + i * ld, moments.dim(), rows_.data() + i * moments.dim());
  }
  moments.Add(rows_.data(), n_rows, pool, scratch_);
}

}  // namespace lowkey

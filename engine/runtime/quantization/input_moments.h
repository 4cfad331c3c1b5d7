#ifndef LOWKEY_ENGINE_RUNTIME_QUANTIZATION_INPUT_MOMENTS_H_
#define LOWKEY_ENGINE_RUNTIME_QUANTIZATION_INPUT_MOMENTS_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/config/model_config.h"
#include "engine/lowrank/moments.h"
#include "engine/model/decoder.h"

namespace lowkey {

// Returns the length of the rows that such maps are multiplied with.
int64_t InputDim(const ModelConfig& config, LinearInput input);

// The second moments of what the linear maps of some layers are multiplied with. One thread.
class InputMoments {
 public:
  // Returns the bytes that one layer's moments take.
  static int64_t LayerBytes(const ModelConfig& config);

  // Counts layers first_layer <= i < end_layer.
  InputMoments(const ModelConfig& config, int64_t first_layer, int64_t end_layer);

  // Adds rows that a decoder shows its observer.
  void Add(int64_t layer, LinearInput input, const float* x, int64_t ld, int64_t n_rows,
           ThreadPool& pool);

  const Moments& of(int64_t layer, LinearInput input) const { return moments_.at({layer, input}); }

 private:
  std::map<std::pair<int64_t, LinearInput>, Moments> moments_;
  std::vector<float> rows_;  // one after another
  MomentsScratch scratch_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_QUANTIZATION_INPUT_MOMENTS_H_

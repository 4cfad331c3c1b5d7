#ifndef LOWKEY_BENCH_RANDOM_MODEL_H_
#define LOWKEY_BENCH_RANDOM_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/config/model_config.h"

namespace lowkey {

struct RandomModelOptions {
  ModelConfig config;          // within its bounds
  DType dtype = DType::kBF16;  // F32, F16 or BF16
  uint64_t seed = 0;
  int64_t shard_bytes = 0;  // more than 0: shards of about this size, with an index
};

// Writes config.json and the weights of a model with random weights into `directory`, which must
// exist. Weights are scaled so that activations stay near one and logits vary (standard deviation
// about 2). The same options give the same bytes. UNAVAILABLE when a file cannot be written,
// INVALID_ARGUMENT for another dtype.
absl::Status WriteRandomModel(const std::string& directory, const RandomModelOptions& options);

// The model that benchmarks measure: hidden 768, 12 layers, 12 heads of 64,
// ffn 2,048, vocabulary 32,000, untied; 110M parameters are multiplied with for each token.
RandomModelOptions Random110m();

// The model above, or one as large as another Llama: "110m", "1.1b" or "7b". INVALID_ARGUMENT for
// another name.
absl::StatusOr<RandomModelOptions> RandomShape(const std::string& name);

// config.json for `config`, as transformers writes it.
std::string ConfigJson(const ModelConfig& config);

}  // namespace lowkey

#endif  // LOWKEY_BENCH_RANDOM_MODEL_H_

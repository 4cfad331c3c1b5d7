#ifndef LOWKEY_BENCH_RANDOM_BUNDLE_H_
#define LOWKEY_BENCH_RANDOM_BUNDLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/config/attention_options.h"
#include "engine/config/model_config.h"

namespace lowkey {

// One entry of lowkey.json (docs/bundles.md), with random weights.
struct RandomMechanism {
  Mechanism mechanism = Mechanism::kEfficient;
  Mechanism over = Mechanism::kEfficient;  // super's
  int32_t n_heads = 0;                     // heads of slices of x; 0: the model's
  int32_t n_kv_heads = 0;                  // optimised, taylorshift; 0: as many as its default
  int32_t lora_rank = 0;                   // > 0: low-rank changes instead of full projections
  int64_t alignment_tokens = 256;          // super's
  LassoOptions lasso = {};
  std::optional<double> perplexity_ratio = {};
  // taylorshift's
  int32_t score_dim = 0;  // 0: head_dim
  int64_t window_tokens = 0;
  std::optional<TaylorVariant> variant = {};
};

struct RandomBundleOptions {
  ModelConfig config;  // the config of the checkpoint in the directory
  std::vector<RandomMechanism> mechanisms;
  uint64_t seed = 0;
};

// Writes lowkey.json and a safetensors file (F32) for each mechanism into `directory`. Wa's rows
// decay from the diagonal and add up to about one. UNAVAILABLE when a file cannot be written.
absl::Status WriteRandomBundle(const std::string& directory, const RandomBundleOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_BENCH_RANDOM_BUNDLE_H_

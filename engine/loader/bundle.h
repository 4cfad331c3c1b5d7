#ifndef LOWKEY_ENGINE_LOADER_BUNDLE_H_
#define LOWKEY_ENGINE_LOADER_BUNDLE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/load_account.h"
#include "engine/base/tensor.h"
#include "engine/config/attention_options.h"
#include "engine/config/model_config.h"
#include "engine/config/perplexity_ratios.h"
#include "engine/config/projections.h"

namespace lowkey {

struct Checkpoint;

// A projection [out, in] of a mechanism: `full`, or the checkpoint's own plus scale * b a. Both
// absent (data == nullptr): the checkpoint's own.
struct BundledProjection {
  TensorView full;  // [out, in]
  TensorView a, b;  // [rank, in], [out, rank]
};

struct BundledLayer {
  std::array<BundledProjection, kNumProjections> projections;
  TensorView alignment;  // super: rows of the lower triangle one after the other, [l (l + 1) / 2]
  // taylorshift: [n_heads] each; either is in all layers or (data == nullptr) in none.
  TensorView tau, tau_window;
};

// A mechanism that lowkey.json adds to a checkpoint, or gives weights to.
struct BundledMechanism {
  Mechanism mechanism = Mechanism::kAtp;   // any but standard
  Mechanism over = Mechanism::kEfficient;  // super: the mechanism whose keys and values it aligns
  // The checkpoint's, with this mechanism's own heads.
  ModelConfig config;
  ProjectionUse use;
  bool has_own_projections = false;  // any of them differs from the checkpoint's
  double lora_scale = 1.0;
  int64_t alignment_tokens = 0;  // super: l, the longest sequence
  LassoOptions lasso;
  int64_t window_tokens = 0;  // taylorshift: of exact weights, a multiple of 64; 0: none
  // taylorshift: the variant that the weights were trained for, if the file says.
  std::optional<TaylorVariant> variant;
  PerplexityRatios perplexity_ratios;  // to standard, as measured by whoever made it
  std::vector<BundledLayer> layers;
};

// Reads `directory`/lowkey.json, if it is there, and the safetensors that it names, and adds its
// mechanisms to the checkpoint, whose own tensors are known. docs/bundles.md describes the format.
// Everything in it is untrusted. INVALID_ARGUMENT names file, field or tensor, actual and expected;
// NOT_FOUND a file that is named and missing.
// Headers are charged to the account.
absl::Status OpenBundle(const std::string& directory, LoadAccount& account, Checkpoint& checkpoint);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_BUNDLE_H_

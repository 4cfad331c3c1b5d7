#ifndef LOWKEY_ENGINE_RUNTIME_INSPECT_H_
#define LOWKEY_ENGINE_RUNTIME_INSPECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/config/attention_options.h"
#include "engine/config/model_config.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// The tools' view of a model, without a server: logits, attention of given tensors, memory,
// low-rankness.

struct MechanismMemory {
  AttentionOptions attention;
  double bytes_per_token = 0;      // far tokens; standard: all tokens
  int64_t bytes_full_context = 0;  // one sequence at the full context
  // Sequences that the cache admits at once with prompts as long as the context, which is when a
  // mechanism reserves most: atp with exact prefill holds the prompt's tokens besides its blocks.
  int64_t n_full_prompts = 0;
  bool exact = true;
};

struct ModelSummary {
  ModelConfig config;
  int64_t n_parameters = 0;
  int64_t file_bytes = 0;
  std::string checkpoint_dtype;  // dtype of most weights in the files: "BF16"
  int64_t weight_bytes = 0;      // in memory with the options' dtype
  std::string dtype;
  int64_t cache_bytes = 0;  // that an engine with the options would take now
  std::vector<MechanismMemory> mechanisms;
};

// Errors: those of OpenCheckpoint. Reads headers only.
absl::StatusOr<ModelSummary> SummarizeModel(const std::string& model_directory,
                                            const EngineOptions& options);

struct LogitsOptions {
  EngineOptions engine;
  AttentionOptions attention;
  int32_t chunk_tokens = 512;  // rows a step, >= 1
};

// Logits [n_tokens, vocab_size] of every position, row-major. INVALID_ARGUMENT for an id out of
// range or no token, OUT_OF_RANGE past the context.
absl::StatusOr<std::vector<float>> ComputeLogits(const std::string& model_directory,
                                                 absl::Span<const int32_t> tokens,
                                                 const LogitsOptions& options);

struct LayerRank {
  int32_t layer = 0;
  int64_t entropy_rank =
      0;             // ceil(2^mu) of the layer's input after the pre-attention norm, not centred
  double ratio = 0;  // entropy_rank / n
};

// Low-rankness of every layer's attention input over the first min(n_tokens, hidden_dim) tokens.
// Same errors as ComputeLogits.
absl::StatusOr<std::vector<LayerRank>> MeasureLowRankness(const std::string& model_directory,
                                                          absl::Span<const int32_t> tokens,
                                                          const EngineOptions& options);

// Attention of one sequence over given tensors, in fp32. q [n_heads, n, head_dim], k and v
// [n_kv_heads, n, head_dim], after RoPE; x [n, n_heads * head_dim]. Empty: those that the mechanism
// has no use for.
struct AttendInputs {
  int64_t n_tokens = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  absl::Span<const float> q, k, v;
  absl::Span<const float> x = {};
  double rope_theta = 10000.0;             // of keys that are slices of x
  Mechanism over = Mechanism::kEfficient;  // super
  absl::Span<const float> alignment = {};  // super: rows of Wa's lower triangle, [l (l + 1) / 2]
  absl::Span<const float> tau = {};        // taylorshift: temperatures [n_heads]; none: the default
  AttentionOptions attention;
  int64_t n_prompt_tokens =
      0;  // rows before it are prompt rows (matters to atp with exact prefill); 0: all
  int64_t chunk_tokens = 512;
  EngineOptions::Dtype cache_dtype = EngineOptions::Dtype::kFloat32;
  int n_threads = 1;
  std::shared_ptr<Device> device = nullptr;  // where it is computed; nullptr: the host
};

struct AttendOutputs {
  std::vector<float> out;            // [n_heads, n, head_dim]
  int64_t cache_bytes = 0;           // held at the end
  int64_t standard_cache_bytes = 0;  // what standard would hold
  int32_t rank = 0;
};

// INVALID_ARGUMENT when sizes disagree or options are out of range, OUT_OF_RANGE when the sequence
// is longer than the mechanism's longest.
absl::StatusOr<AttendOutputs> Attend(const AttendInputs& inputs);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_INSPECT_H_

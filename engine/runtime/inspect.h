#ifndef LOWKEY_ENGINE_RUNTIME_INSPECT_H_
#define LOWKEY_ENGINE_RUNTIME_INSPECT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/config/attention_options.h"
#include "engine/config/model_config.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// Tools look at a model through these functions, without a server: logits, attention over given
// tensors, memory, low-rankness.

// The memory of one mechanism with some options.
struct MechanismMemory {
  AttentionOptions attention;
  // A long sequence of n tokens holds fixed_bytes + n * bytes_per_token. fixed_bytes is
  // taylorshift's state, atp's open blocks, a sliding window's pages; standard has none.
  double bytes_per_token = 0;
  int64_t fixed_bytes = 0;
  int64_t bytes_full_context = 0;  // held by one sequence at the full context
  int64_t n_full_sequences = 0;    // sequences at the full context that the cache holds at once
  bool exact = true;
  // taylorshift, of the model's own weights: numbers of a key where they are fewer than a value's,
  // and tokens that are read exactly.
  std::optional<int64_t> score_dim;
  int64_t window_tokens = 0;
};

struct ModelSummary {
  ModelConfig config;
  int64_t n_parameters = 0;
  int64_t file_bytes = 0;
  std::string checkpoint_dtype;  // dtype of most weights in the files: "BF16"
  int64_t weight_bytes = 0;      // in memory with the options' dtype
  std::string dtype;
  // The memory of an engine that is started now with the options (model_memory.h).
  int64_t step_bytes = 0, cache_bytes = 0;
  int64_t total_bytes = 0;  // weights, step and cache
  std::vector<MechanismMemory> mechanisms;
};

// Reads no weights. RESOURCE_EXHAUSTED.
absl::StatusOr<ModelSummary> SummarizeModel(const Checkpoint& checkpoint,
                                            const EngineOptions& options);

struct LogitsOptions {
  EngineOptions engine;
  AttentionOptions attention;
  int32_t chunk_tokens = 512;  // rows a step, >= 1
  // The tokens of the prompt. Those behind it are given one by one, as if the model had generated
  // them, and only they have logits. 0: all tokens
  int64_t n_prompt_tokens = 0;
};

// Logits [n_tokens, vocab_size] of every position, or of those behind the prompt, row-major.
// INVALID_ARGUMENT for an id out of range, no token or a prompt that leaves none behind it,
// OUT_OF_RANGE past the context.
absl::StatusOr<std::vector<float>> ComputeLogits(std::shared_ptr<const Checkpoint> checkpoint,
                                                 absl::Span<const int32_t> tokens,
                                                 const LogitsOptions& options);

struct LayerRank {
  int32_t layer = 0;
  int64_t entropy_rank = 0;  // ceil(2^mu) of the layer's normed input, not centered
  double ratio = 0;          // entropy_rank / n
};

// Measures how low-rank every layer's attention input is over the first min(n_tokens, hidden_dim)
// tokens, on the host. ComputeLogits' errors.
absl::StatusOr<std::vector<LayerRank>> MeasureLowRankness(
    std::shared_ptr<const Checkpoint> checkpoint, absl::Span<const int32_t> tokens,
    const EngineOptions& options);

// Tensors of one sequence, in fp32: q [n_heads, n, head_dim], k and v [n_kv_heads, n, head_dim],
// after RoPE; x [n, n_heads * head_dim]. Tensors that the mechanism does not read are empty.
struct AttendInputs {
  int64_t n_tokens = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0;
  absl::Span<const float> q, k, v;
  absl::Span<const float> x = {};
  double rope_theta = 10000.0;             // of keys that are slices of x
  Mechanism over = Mechanism::kEfficient;  // super
  absl::Span<const float> alignment = {};  // super: rows of Wa's lower triangle, [l (l + 1) / 2]
  absl::Span<const float> tau = {};        // taylorshift: temperatures [n_heads]; none: the default
  AttentionOptions attention;
  int64_t n_prompt_tokens = 0;  // prompt rows (matters to atp with exact prefill); 0: all rows
  int64_t chunk_tokens = 512;
  EngineOptions::Dtype cache_dtype = EngineOptions::Dtype::kFloat32;
  int n_threads = 1;
  std::shared_ptr<Device> device = nullptr;  // nullptr: the host
};

struct AttendOutputs {
  std::vector<float> out;            // [n_heads, n, head_dim]
  int64_t cache_bytes = 0;           // held at the end
  int64_t standard_cache_bytes = 0;  // what standard would hold
  int32_t rank = 0;
};

// Computes attention. INVALID_ARGUMENT when sizes disagree or options are out of range,
// OUT_OF_RANGE when the sequence is too long for the mechanism.
absl::StatusOr<AttendOutputs> Attend(const AttendInputs& inputs);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_INSPECT_H_

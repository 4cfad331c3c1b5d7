#ifndef LOWKEY_ENGINE_CONFIG_MODEL_CONFIG_H_
#define LOWKEY_ENGINE_CONFIG_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lowkey {

struct RopeDefault {
  bool operator==(const RopeDefault&) const = default;
};
struct RopeLinear {
  double factor = 1.0;  // > 0: positions are divided by it
  bool operator==(const RopeLinear&) const = default;
};
// Llama 3.1's frequency-dependent scaling.
struct RopeLlama3 {
  double factor = 8.0;            // > 0
  double low_freq_factor = 1.0;   // > 0
  double high_freq_factor = 4.0;  // > low_freq_factor
  double original_max_position_embeddings = 8192;
  bool operator==(const RopeLlama3&) const = default;
};
// The frequency of pair j is divided by factors[j].
struct RopeFactors {
  std::vector<float> factors;  // [head_dim / 2], each finite and > 0
  bool operator==(const RopeFactors&) const = default;
};
using RopeScaling = std::variant<RopeDefault, RopeLinear, RopeLlama3, RopeFactors>;

// A Llama-style decoder. The loader guarantees every bound below.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", ...
  int32_t vocab_size = 0;    // 1..2^20
  int32_t hidden_dim = 0;    // 1..65536
  int32_t ffn_dim = 0;       // 1..2^18
  int32_t n_layers = 0;      // 1..512
  int32_t n_heads = 0;       // 1..1024, a multiple of n_kv_heads
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;  // even, 2..512
  // Numbers of a query and of a key, even, 2..512, where a bundle's mechanism has other ones than a
  // value's head_dim.
  std::optional<int32_t> score_dim;
  int32_t context_tokens = 0;  // max_position_embeddings, 1..2^24
  float rms_norm_eps = 1e-5f;  // > 0
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
  bool attention_bias = false;  // biases on q, k and v
  bool output_bias = false;     // a bias on o
  bool qk_norm = false;         // every head of q and k is normed before it is rotated
  bool mlp_bias = false;        // biases on gate, up and down
  // A row sees itself and the sliding_window - 1 rows before it; >= 1. nullopt: all rows.
  std::optional<int32_t> sliding_window;
  // Both from generation_config.json, else config.json; or from the GGUF file's metadata. Ids in
  // [0, vocab_size), distinct; any of eos_tokens ends a text.
  std::optional<int32_t> bos_token;
  std::vector<int32_t> eos_tokens;

  int32_t key_dim() const { return score_dim.value_or(head_dim); }
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_MODEL_CONFIG_H_

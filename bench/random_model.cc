#include "bench/random_model.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/dtype.h"
#include "engine/base/mix_bits.h"
#include "engine/base/status_macros.h"
#include "engine/loader/safetensors.h"

namespace lowkey {
namespace {

// A tensor whose elements are uniform around `center` with standard deviation `deviation`.
struct Plan {
  TensorSpec spec;
  float center = 0.0f;
  float deviation = 0.0f;

  int64_t size() const {
    int64_t n = 1;
    for (int64_t d : spec.shape) n *= d;
    return n;
  }
};

class PlanBuilder {
 public:
  explicit PlanBuilder(const RandomModelOptions& options)
      : dtype_(options.dtype), config_(options.config) {}

  std::vector<Plan> Build() {
    const int64_t vocab = config_.vocab_size, hidden = config_.hidden_dim;
    const float head = 2.0f / std::sqrt(static_cast<float>(hidden));
    Add("model.embed_tokens.weight", {vocab, hidden}, 0.0f, config_.tied_embeddings ? head : 1.0f);
    for (int32_t i = 0; i < config_.n_layers; ++i) AddLayer(absl::StrCat("model.layers.", i, "."));
    Add("model.norm.weight", {hidden}, 1.0f, 0.1f);
    if (!config_.tied_embeddings) Add("lm_head.weight", {vocab, hidden}, 0.0f, head);
    return std::move(plans_);
  }

 private:
  void Add(std::string name, std::vector<int64_t> shape, float center, float deviation) {
    plans_.push_back({{std::move(name), dtype_, std::move(shape)}, center, deviation});
  }

  void AddLinear(const std::string& name, int64_t out, int64_t in, float gain) {
    Add(absl::StrCat(name, ".weight"), {out, in}, 0.0f, gain / std::sqrt(static_cast<float>(in)));
  }

  void AddLayer(const std::string& prefix) {
    const int64_t hidden = config_.hidden_dim, ffn = config_.ffn_dim;
    const int64_t q = int64_t{config_.n_heads} * config_.head_dim;
    const int64_t kv = int64_t{config_.n_kv_heads} * config_.head_dim;
    // The numbers that a layer adds to the residual stream shrink with depth, as in GPT-2.
    const float residual = 1.0f / std::sqrt(2.0f * static_cast<float>(config_.n_layers));
    const std::string attention = absl::StrCat(prefix, "self_attn.");
    const std::string mlp = absl::StrCat(prefix, "mlp.");
    const auto bias = [&](bool wanted, const std::string& name, int64_t size) {
      if (wanted) Add(absl::StrCat(name, ".bias"), {size}, 0.0f, 0.1f);
    };
    Add(absl::StrCat(prefix, "input_layernorm.weight"), {hidden}, 1.0f, 0.1f);
    const std::pair<const char*, int64_t> inputs[] = {
        {"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}};
    for (const auto& [name, size] : inputs) {
      AddLinear(absl::StrCat(attention, name), size, hidden, 1.0f);
      bias(config_.attention_bias, absl::StrCat(attention, name), size);
    }
    AddLinear(absl::StrCat(attention, "o_proj"), hidden, q, residual);
    bias(config_.attention_bias, absl::StrCat(attention, "o_proj"), hidden);
    Add(absl::StrCat(prefix, "post_attention_layernorm.weight"), {hidden}, 1.0f, 0.1f);
    for (const char* name : {"gate_proj", "up_proj"}) {
      AddLinear(absl::StrCat(mlp, name), ffn, hidden, 1.0f);
      bias(config_.mlp_bias, absl::StrCat(mlp, name), ffn);
    }
    AddLinear(absl::StrCat(mlp, "down_proj"), hidden, ffn, residual);
    bias(config_.mlp_bias, absl::StrCat(mlp, "down_proj"), hidden);
  }

  const DType dtype_;
  const ModelConfig& config_;
  std::vector<Plan> plans_;
};

void Store(float x, DType dtype, std::byte* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, &x, sizeof(x));
    return;
  }
  const uint16_t bits = dtype == DType::kBF16 ? ToBFloat16(x).bits : FloatToHalf(x);
  std::memcpy(out, &bits, sizeof(bits));
}

// Appends the plan's elements; `key` names this tensor's random numbers.
absl::Status AppendRandom(const Plan& plan, uint64_t key, SafetensorsWriter& writer) {
  constexpr int64_t kChunk = 1 << 16;  // elements; a multiple of the four that one draw gives
  const int64_t element_bytes = static_cast<int64_t>(DTypeBytes(plan.spec.dtype));
  std::vector<std::byte> bytes(kChunk * element_bytes);
  // 16 random bits, uniform in [-1, 1): the standard deviation is 1 / sqrt(3).
  const float scale = plan.deviation * std::sqrt(3.0f) * 0x1p-15f;
  uint64_t counter = key;
  for (int64_t begin = 0, size = plan.size(); begin < size; begin += kChunk) {
    const int64_t n = std::min(kChunk, size - begin);
    uint64_t draw = 0;
    for (int64_t i = 0; i < n; ++i) {
      draw = i % 4 == 0 ? MixBits(counter += kGoldenStep) : draw >> 16;
      const float x = plan.center + scale * static_cast<float>(static_cast<int16_t>(draw));
      Store(x, plan.spec.dtype, bytes.data() + i * element_bytes);
    }
    LK_RETURN_IF_ERROR(writer.Append({bytes.data(), static_cast<size_t>(n * element_bytes)}));
  }
  return absl::OkStatus();
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) {
    return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status WriteWeights(const std::string& path, const std::vector<Plan>& plans, uint64_t seed) {
  std::vector<TensorSpec> specs;
  for (const Plan& plan : plans) specs.push_back(plan.spec);
  LK_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, specs));
  for (const Plan& plan : plans) {
    uint64_t key = MixBits(seed);
    for (char c : plan.spec.name) key = MixBits(key ^ static_cast<unsigned char>(c));
    LK_RETURN_IF_ERROR(AppendRandom(plan, key, writer));
  }
  return writer.Finish();
}

// Consecutive tensors of at most shard_bytes together, at least one each.
std::vector<std::vector<Plan>> SplitIntoShards(std::vector<Plan> plans, int64_t shard_bytes) {
  std::vector<std::vector<Plan>> shards(1);
  int64_t n_bytes = 0;
  for (Plan& plan : plans) {
    const int64_t plan_bytes = plan.size() * static_cast<int64_t>(DTypeBytes(plan.spec.dtype));
    if (!shards.back().empty() && n_bytes + plan_bytes > shard_bytes) {
      shards.emplace_back();
      n_bytes = 0;
    }
    n_bytes += plan_bytes;
    shards.back().push_back(std::move(plan));
  }
  return shards;
}

absl::Status WriteShards(const std::string& directory, std::vector<Plan> plans,
                         const RandomModelOptions& options) {
  const auto shards = SplitIntoShards(std::move(plans), options.shard_bytes);
  std::vector<std::string> entries;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, shards.size());
    for (const Plan& plan : shards[i]) {
      entries.push_back(absl::StrFormat("    \"%s\": \"%s\"", plan.spec.name, name));
    }
    LK_RETURN_IF_ERROR(WriteWeights(absl::StrCat(directory, "/", name), shards[i], options.seed));
  }
  return WriteText(
      absl::StrCat(directory, "/model.safetensors.index.json"),
      absl::StrCat("{\n  \"weight_map\": {\n", absl::StrJoin(entries, ",\n"), "\n  }\n}\n"));
}

std::string RopeJson(const RopeScaling& scaling) {
  if (const auto* linear = std::get_if<RopeLinear>(&scaling)) {
    return absl::StrFormat("{\"rope_type\": \"linear\", \"factor\": %.17g}", linear->factor);
  }
  if (const auto* llama3 = std::get_if<RopeLlama3>(&scaling)) {
    return absl::StrFormat(
        "{\"rope_type\": \"llama3\", \"factor\": %.17g, \"low_freq_factor\": %.17g, "
        "\"high_freq_factor\": %.17g, \"original_max_position_embeddings\": %.17g}",
        llama3->factor, llama3->low_freq_factor, llama3->high_freq_factor,
        llama3->original_max_position_embeddings);
  }
  return "null";
}

std::string OrNull(std::optional<int32_t> value) {
  return value.has_value() ? absl::StrCat(*value) : "null";
}

}  // namespace

std::string ConfigJson(const ModelConfig& config) {
  const auto boolean = [](bool value) { return value ? "true" : "false"; };
  const std::string eos = config.eos_tokens.empty()
                              ? "null"
                              : absl::StrCat("[", absl::StrJoin(config.eos_tokens, ", "), "]");
  const std::pair<const char*, std::string> fields[] = {
      {"architectures", absl::StrCat("[\"", config.architecture, "\"]")},
      {"vocab_size", absl::StrCat(config.vocab_size)},
      {"hidden_size", absl::StrCat(config.hidden_dim)},
      {"intermediate_size", absl::StrCat(config.ffn_dim)},
      {"num_hidden_layers", absl::StrCat(config.n_layers)},
      {"num_attention_heads", absl::StrCat(config.n_heads)},
      {"num_key_value_heads", absl::StrCat(config.n_kv_heads)},
      {"head_dim", absl::StrCat(config.head_dim)},
      {"max_position_embeddings", absl::StrCat(config.context_tokens)},
      {"rms_norm_eps", absl::StrFormat("%.9g", config.rms_norm_eps)},
      {"rope_theta", absl::StrFormat("%.17g", config.rope_theta)},
      {"rope_scaling", RopeJson(config.rope_scaling)},
      {"hidden_act", "\"silu\""},
      {"tie_word_embeddings", boolean(config.tied_embeddings)},
      {"attention_bias", boolean(config.attention_bias)},
      {"mlp_bias", boolean(config.mlp_bias)},
      {"sliding_window", OrNull(config.sliding_window)},
      {"bos_token_id", OrNull(config.bos_token)},
      {"eos_token_id", eos},
  };
  std::vector<std::string> lines;
  for (const auto& [key, value] : fields) lines.push_back(absl::StrCat("  \"", key, "\": ", value));
  return absl::StrCat("{\n", absl::StrJoin(lines, ",\n"), "\n}\n");
}

RandomModelOptions Random110m() {
  RandomModelOptions options;
  ModelConfig& c = options.config;
  c.architecture = "LlamaForCausalLM";
  c.vocab_size = 32000;
  c.hidden_dim = 768;
  c.ffn_dim = 2048;
  c.n_layers = 12;
  c.n_heads = c.n_kv_heads = 12;
  c.head_dim = 64;
  c.context_tokens = 16384;
  return options;
}

absl::StatusOr<RandomModelOptions> RandomShape(const std::string& name) {
  RandomModelOptions options = Random110m();
  ModelConfig& c = options.config;
  if (name == "110m") return options;
  if (name == "1.1b") {
    c.hidden_dim = 2048, c.ffn_dim = 5632, c.n_layers = 22;
    c.n_heads = 32, c.n_kv_heads = 4, c.head_dim = 64;
    return options;
  }
  if (name == "7b") {
    c.hidden_dim = 4096, c.ffn_dim = 11008, c.n_layers = 32;
    c.n_heads = c.n_kv_heads = 32, c.head_dim = 128;
    return options;
  }
  return absl::InvalidArgumentError(absl::StrCat("shape ", name, ", expected 110m, 1.1b or 7b"));
}

absl::Status WriteRandomModel(const std::string& directory, const RandomModelOptions& options) {
  if (options.dtype != DType::kF32 && options.dtype != DType::kF16 &&
      options.dtype != DType::kBF16) {
    return absl::InvalidArgumentError("random model: dtype, expected F32, F16 or BF16");
  }
  LK_RETURN_IF_ERROR(
      WriteText(absl::StrCat(directory, "/config.json"), ConfigJson(options.config)));
  std::vector<Plan> plans = PlanBuilder(options).Build();
  if (options.shard_bytes > 0) return WriteShards(directory, std::move(plans), options);
  return WriteWeights(absl::StrCat(directory, "/model.safetensors"), plans, options.seed);
}

}  // namespace lowkey

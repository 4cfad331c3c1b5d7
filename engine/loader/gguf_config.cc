#include "engine/loader/gguf_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr char kEmbeddingName[] = "token_embd.weight";
constexpr char kTokens[] = "tokenizer.ggml.tokens";

struct Architecture {
  const char *name, *ours;
  bool interleaved_qk, attention_bias, qk_norm, has_rope_factors;
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", true, false, false, true},
    {"qwen2", "Qwen2ForCausalLM", false, true, false, false},
    {"qwen3", "Qwen3ForCausalLM", false, false, true, false},
};

// The metadata, with the keys that belong to an architecture.
struct Keys {
  const GgufMetadata& metadata;
  std::string prefix;

  std::string operator()(const char* key) const { return absl::StrCat(prefix, ".", key); }
};

absl::Status Unsupported(const GgufMetadata& metadata, const std::string& key,
                         const std::string& known) {
  return absl::UnimplementedError(
      std::string(metadata.Error(key, absl::StrCat("what we compute: ", known)).message()));
}

absl::StatusOr<const Architecture*> ReadArchitecture(const GgufMetadata& metadata) {
  constexpr char kKey[] = "general.architecture";
  LK_ASSIGN_OR_RETURN(const auto name, metadata.String(kKey));
  if (!name.has_value()) return metadata.Error(kKey, "llama, qwen2 or qwen3");
  for (const Architecture& architecture : kArchitectures) {
    if (*name == architecture.name) return &architecture;
  }
  return Unsupported(metadata, kKey, "llama, qwen2 or qwen3");
}

// Settings that the engine supports at one value only.
absl::Status RefuseUnsupported(const Keys& keys) {
  struct Setting {
    std::string key;
    int64_t min, max;
  };
  for (const Setting& setting :
       {Setting{keys("expert_count"), 0, 0}, Setting{"general.quantization_version", 2, 2}}) {
    LK_ASSIGN_OR_RETURN(const auto value, keys.metadata.Int(setting.key, 0, 1 << 16));
    if (value.has_value() && (*value < setting.min || *value > setting.max)) {
      return Unsupported(keys.metadata, setting.key, absl::StrCat(setting.max));
    }
  }
  const std::string causal = keys("attention.causal");
  LK_ASSIGN_OR_RETURN(const auto is_causal, keys.metadata.Bool(causal));
  if (!is_causal.value_or(true)) return Unsupported(keys.metadata, causal, "true");
  return absl::OkStatus();
}

// Reads a size of all layers, 1..max: one number, or a list of equal numbers, one per layer.
absl::StatusOr<std::optional<int64_t>> LayerInt(const Keys& keys, const char* name, int64_t max,
                                                int64_t n_layers) {
  const std::string key = keys(name);
  if (!keys.metadata.IsArray(key)) return keys.metadata.Int(key, 1, max);
  LK_ASSIGN_OR_RETURN(const auto array, keys.metadata.Ints(key));
  const std::vector<int64_t> list = array.value_or(std::vector<int64_t>());
  if (static_cast<int64_t>(list.size()) != n_layers) {
    return keys.metadata.Error(key,
                               absl::StrCat("a number, or one for each of ", n_layers, " layers"));
  }
  for (const int64_t value : list) {
    if (value < 1 || value > max) {
      return keys.metadata.Error(key, absl::StrCat("numbers in 1..", max, ", not ", value));
    }
    if (value != list[0]) {
      return Unsupported(keys.metadata, key,
                         absl::StrCat("one number for all layers, not ", list[0], " and ", value));
    }
  }
  return list[0];
}

absl::StatusOr<int32_t> RequiredLayerInt(const Keys& keys, const char* name, int64_t max,
                                         int64_t n_layers) {
  LK_ASSIGN_OR_RETURN(const auto value, LayerInt(keys, name, max, n_layers));
  if (!value.has_value()) return keys.metadata.Error(keys(name), absl::StrCat("1..", max));
  return static_cast<int32_t>(*value);
}

// key_length and value_length, each hidden_dim / n_heads where it is absent; all of it is rotated.
absl::Status ReadHeadDim(const Keys& keys, ModelConfig& config) {
  const std::string names[] = {keys("attention.key_length"), keys("attention.value_length"),
                               keys("rope.dimension_count")};
  const int64_t quotient = config.hidden_dim / config.n_heads;
  if (!keys.metadata.Has(names[0]) && config.hidden_dim % config.n_heads != 0) {
    return keys.metadata.Error(names[0],
                               absl::StrCat("it where embedding_length ", config.hidden_dim,
                                            " is no multiple of head_count ", config.n_heads));
  }
  LK_ASSIGN_OR_RETURN(const auto key_length, keys.metadata.Int(names[0], 1, 512));
  const int64_t head_dim = key_length.value_or(quotient);
  if (head_dim < 2 || head_dim > 512 || head_dim % 2 != 0) {
    return keys.metadata.Error(names[0], absl::StrCat("an even number in 2..512, not ", head_dim));
  }
  for (const std::string& name : {names[1], names[2]}) {
    const int64_t absent = name == names[1] ? quotient : head_dim;
    LK_ASSIGN_OR_RETURN(const auto value, keys.metadata.Int(name, 0, 1 << 16));
    if (value.value_or(absent) != head_dim) {
      return Unsupported(keys.metadata, name, absl::StrCat("the key length ", head_dim));
    }
  }
  config.head_dim = static_cast<int32_t>(head_dim);
  return absl::OkStatus();
}

// vocab_size, else the rows of the embedding, whose shape the loader checks against it.
absl::StatusOr<int32_t> ReadVocabSize(const Keys& keys, const GgufIndex& index) {
  const std::string key = keys("vocab_size");
  LK_ASSIGN_OR_RETURN(const auto given, keys.metadata.Int(key, 1, 1 << 20));
  const auto embedding = index.tensors.find(kEmbeddingName);
  if (given.has_value() || embedding == index.tensors.end()) {
    return static_cast<int32_t>(given.value_or(1));
  }
  const std::vector<int64_t>& shape = embedding->second.shape;
  if (shape.size() != 2 || shape[0] < 1 || shape[0] > 1 << 20) {
    return absl::InvalidArgumentError(absl::StrCat(kEmbeddingName, ": shape ", ShapeString(shape),
                                                   ", expected [vocab_size, embedding_length]"));
  }
  return static_cast<int32_t>(shape[0]);
}

absl::Status ReadSizes(const Keys& keys, const GgufIndex& index, ModelConfig& config) {
  const GgufMetadata& metadata = keys.metadata;
  LK_ASSIGN_OR_RETURN(config.n_layers, metadata.RequiredInt(keys("block_count"), 1, 512));
  LK_ASSIGN_OR_RETURN(config.context_tokens,
                      metadata.RequiredInt(keys("context_length"), 1, 1 << 24));
  LK_ASSIGN_OR_RETURN(config.hidden_dim, metadata.RequiredInt(keys("embedding_length"), 1, 65536));
  LK_ASSIGN_OR_RETURN(config.ffn_dim,
                      RequiredLayerInt(keys, "feed_forward_length", 1 << 18, config.n_layers));
  LK_ASSIGN_OR_RETURN(config.n_heads,
                      RequiredLayerInt(keys, "attention.head_count", 1024, config.n_layers));
  LK_ASSIGN_OR_RETURN(const auto n_kv_heads,
                      LayerInt(keys, "attention.head_count_kv", 1024, config.n_layers));
  config.n_kv_heads = static_cast<int32_t>(n_kv_heads.value_or(config.n_heads));
  if (config.n_heads % config.n_kv_heads != 0) {
    return metadata.Error(keys("attention.head_count"),
                          absl::StrCat("a multiple of head_count_kv ", config.n_kv_heads));
  }
  LK_ASSIGN_OR_RETURN(config.vocab_size, ReadVocabSize(keys, index));
  const std::string window = keys("attention.sliding_window");
  LK_ASSIGN_OR_RETURN(const auto sliding_window, metadata.Int(window, 0, int64_t{1} << 32));
  if (sliding_window.value_or(0) > 0 && *sliding_window < config.context_tokens) {
    return Unsupported(metadata, window,
                       absl::StrCat("none below the context of ", config.context_tokens));
  }
  return ReadHeadDim(keys, config);
}

absl::StatusOr<RopeFactors> ReadRopeFactors(const TensorView& tensor, int32_t head_dim) {
  const std::string expected = absl::StrCat("F32 of shape [", head_dim / 2, "]");
  if (tensor.dtype != DType::kF32 || tensor.shape != std::vector<int64_t>{head_dim / 2}) {
    return absl::InvalidArgumentError(
        absl::StrCat(kRopeFactorsName, ": ", std::string(DTypeName(tensor.dtype)), " of shape ",
                     ShapeString(tensor.shape), ", expected ", expected));
  }
  RopeFactors result;
  result.factors.resize(tensor.size());
  LoadFloats(tensor, 0, tensor.size(), result.factors.data());
  for (const float factor : result.factors) {
    if (!(factor >= 1e-6f && factor <= 1e6f)) {
      return absl::InvalidArgumentError(
          absl::StrCat(kRopeFactorsName, ": ", factor, ", expected numbers in 1e-6..1e6"));
    }
  }
  return result;
}

absl::Status ReadRotary(const Keys& keys, const GgufIndex& index, const Architecture& architecture,
                        ModelConfig& config) {
  const GgufMetadata& metadata = keys.metadata;
  LK_ASSIGN_OR_RETURN(const auto theta, metadata.Number(keys("rope.freq_base"), 1e-3, 1e12));
  config.rope_theta = theta.value_or(10000.0);
  const std::string type_key = keys("rope.scaling.type");
  LK_ASSIGN_OR_RETURN(const auto type, metadata.String(type_key));
  if (type.has_value() && *type != "none" && *type != "linear") {
    return Unsupported(metadata, type_key, "none or linear");
  }
  RopeLinear linear;
  for (const char* name : {"rope.scale_linear", "rope.scaling.factor"}) {  // the old key first
    LK_ASSIGN_OR_RETURN(const auto factor, metadata.Number(keys(name), 0, 1e6));
    // 0 stands for none.
    if (type != "none" && factor.value_or(0) > 0) linear.factor = *factor;
  }
  if (linear.factor < 1e-6) {
    return metadata.Error(keys("rope.scaling.factor"), "0 or a number in 1e-6..1e6");
  }
  if (linear.factor != 1) config.rope_scaling = linear;
  const auto factors = index.tensors.find(kRopeFactorsName);
  if (!architecture.has_rope_factors || factors == index.tensors.end()) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(RopeFactors scaling, ReadRopeFactors(factors->second, config.head_dim));
  for (float& factor : scaling.factors) factor *= static_cast<float>(linear.factor);
  config.rope_scaling = std::move(scaling);
  return absl::OkStatus();
}

absl::Status ReadTokens(const GgufMetadata& metadata, ModelConfig& config) {
  const int64_t last = config.vocab_size - 1;
  LK_ASSIGN_OR_RETURN(const auto bos, metadata.Int("tokenizer.ggml.bos_token_id", 0, last));
  if (bos.has_value()) config.bos_token = static_cast<int32_t>(*bos);
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    LK_ASSIGN_OR_RETURN(const auto end, metadata.Int(key, 0, last));
    if (!end.has_value()) continue;
    const auto token = static_cast<int32_t>(*end);
    std::vector<int32_t>& ends = config.eos_tokens;
    if (std::find(ends.begin(), ends.end(), token) == ends.end()) ends.push_back(token);
  }
  LK_ASSIGN_OR_RETURN(const auto tokens, metadata.Strings(kTokens));
  if (tokens.has_value() && tokens->size() > static_cast<size_t>(config.vocab_size)) {
    return metadata.Error(
        kTokens, absl::StrCat("at most ", config.vocab_size, ", the rows of ", kEmbeddingName));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GgufConfig> ReadGgufConfig(const GgufIndex& index) {
  const GgufMetadata& metadata = index.metadata;
  LK_ASSIGN_OR_RETURN(const Architecture* architecture, ReadArchitecture(metadata));
  const Keys keys{metadata, architecture->name};
  GgufConfig result;
  ModelConfig& config = result.model;
  config.architecture = architecture->ours;
  config.attention_bias = architecture->attention_bias;
  config.qk_norm = architecture->qk_norm;
  result.interleaved_qk = architecture->interleaved_qk;
  LK_RETURN_IF_ERROR(RefuseUnsupported(keys));
  LK_RETURN_IF_ERROR(ReadSizes(keys, index, config));
  const std::string eps_key = keys("attention.layer_norm_rms_epsilon");
  LK_ASSIGN_OR_RETURN(const auto eps, metadata.Number(eps_key, 1e-30, 1.0));
  if (!eps.has_value()) return metadata.Error(eps_key, "a number in 1e-30..1");
  config.rms_norm_eps = static_cast<float>(*eps);
  LK_RETURN_IF_ERROR(ReadRotary(keys, index, *architecture, config));
  config.tied_embeddings =
      !index.tensors.contains("output.weight") && !index.foreign_dtypes.contains("output.weight");
  LK_RETURN_IF_ERROR(ReadTokens(metadata, config));
  return result;
}

}  // namespace lowkey

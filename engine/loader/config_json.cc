#include "engine/loader/config_json.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr size_t kMaxEosTokens = 64;

// The differences between families: transformers' defaults for absent fields, and fields it reads.
struct Family {
  const char* architecture;
  std::optional<int32_t> n_kv_heads;  // nullopt: n_heads
  std::optional<int32_t> head_dim;    // nullopt: hidden_dim / n_heads
  int32_t context_tokens;
  std::optional<int32_t> bos_token, eos_token;
};
constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", std::nullopt, std::nullopt, 2048, 1, 2},
    {"MistralForCausalLM", 8, std::nullopt, 4096 * 32, 1, 2},
    {"Qwen2ForCausalLM", 32, std::nullopt, 32768, std::nullopt, std::nullopt},
    {"Qwen3ForCausalLM", 32, 128, 32768, std::nullopt, std::nullopt},
};
enum FamilyIndex { kLlama, kMistral, kQwen2, kQwen3 };

bool Is(const ModelConfig& config, FamilyIndex family) {
  return config.architecture == kFamilies[family].architecture;
}

const Family& FamilyOf(const ModelConfig& config) {
  for (const Family& family : kFamilies) {
    if (config.architecture == family.architecture) return family;
  }
  return kFamilies[kLlama];  // not reached: ReadArchitecture knows no other
}

absl::Status Unsupported(const JsonFields& fields, const char* key, const std::string& known) {
  const json* value = fields.Find(key);
  return absl::UnimplementedError(absl::StrCat(fields.name(), ": ", key, ": ",
                                               value == nullptr ? "null" : ShortText(*value),
                                               " is not supported, expected ", known));
}

absl::Status ReadArchitecture(const JsonFields& fields, ModelConfig& config) {
  std::string known = "one of";
  for (const Family& family : kFamilies) {
    absl::StrAppend(&known, " [\"", family.architecture, "\"]");
  }
  const json* list = fields.Find("architectures");
  if (list == nullptr || !list->is_array() || list->size() != 1 || !(*list)[0].is_string()) {
    return fields.Error("architectures", known);
  }
  config.architecture = (*list)[0].get<std::string>();
  for (const Family& family : kFamilies) {
    if (config.architecture == family.architecture) return absl::OkStatus();
  }
  return Unsupported(fields, "architectures", known);
}

// Settings that the engine supports at one value only.
absl::Status RefuseUnsupported(const JsonFields& fields) {
  constexpr char kCompression[] = "compression_config";
  if (fields.Find(kCompression) != nullptr) {
    return Unsupported(fields, kCompression, "unquantized weights");
  }
  LK_ASSIGN_OR_RETURN(const auto activation, fields.String("hidden_act"));
  if (activation.value_or("silu") != "silu") return Unsupported(fields, "hidden_act", "\"silu\"");
  return absl::OkStatus();
}

// partial_rotary_factor stands in config.json, or in rope_parameters.
absl::Status RefusePartialRotary(const JsonFields& fields) {
  LK_ASSIGN_OR_RETURN(const auto partial, fields.Number("partial_rotary_factor", {0.0, 1.0}));
  if (partial.value_or(1.0) != 1.0) return Unsupported(fields, "partial_rotary_factor", "1");
  return absl::OkStatus();
}

absl::Status ReadSizes(const JsonFields& fields, ModelConfig& config) {
  LK_ASSIGN_OR_RETURN(config.vocab_size, fields.RequiredInt("vocab_size", {1, 1 << 20}));
  LK_ASSIGN_OR_RETURN(config.hidden_dim, fields.RequiredInt("hidden_size", {1, 65536}));
  LK_ASSIGN_OR_RETURN(config.ffn_dim, fields.RequiredInt("intermediate_size", {1, 1 << 18}));
  LK_ASSIGN_OR_RETURN(config.n_layers, fields.RequiredInt("num_hidden_layers", {1, 512}));
  LK_ASSIGN_OR_RETURN(config.n_heads, fields.RequiredInt("num_attention_heads", {1, 1024}));
  LK_ASSIGN_OR_RETURN(const auto n_kv_heads, fields.Int("num_key_value_heads", {1, 1024}));
  LK_ASSIGN_OR_RETURN(auto head_dim, fields.Int("head_dim", {2, 512}));
  LK_ASSIGN_OR_RETURN(const auto context, fields.Int("max_position_embeddings", {1, 1 << 24}));
  const Family& family = FamilyOf(config);
  const bool has_kv_heads = fields.Has("num_key_value_heads");  // null stands for n_heads
  const int32_t default_kv_heads =
      has_kv_heads ? config.n_heads : family.n_kv_heads.value_or(config.n_heads);
  config.n_kv_heads = static_cast<int32_t>(n_kv_heads.value_or(default_kv_heads));
  config.context_tokens = static_cast<int32_t>(context.value_or(family.context_tokens));
  if (config.n_heads % config.n_kv_heads != 0) {
    return fields.Error("num_attention_heads",
                        absl::StrCat("a multiple of num_key_value_heads ", config.n_kv_heads));
  }
  if (!fields.Has("head_dim")) head_dim = family.head_dim;
  if (!head_dim.has_value() && config.hidden_dim % config.n_heads != 0) {
    return fields.Error("hidden_size", absl::StrCat("a multiple of num_attention_heads ",
                                                    config.n_heads, ", or a head_dim"));
  }
  const int64_t dim = head_dim.value_or(config.hidden_dim / config.n_heads);
  if (dim < 2 || dim > 512 || dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(fields.name(), ": head_dim: ", dim,
                     head_dim.has_value() ? "" : " (hidden_size / num_attention_heads)",
                     ", expected an even number in 2..512"));
  }
  config.head_dim = static_cast<int32_t>(dim);
  return absl::OkStatus();
}

absl::StatusOr<RopeLlama3> ReadLlama3(const JsonFields& rope) {
  RopeLlama3 scaling;
  const Range<double> factors{1e-6, 1e6};
  LK_ASSIGN_OR_RETURN(scaling.factor, rope.RequiredNumber("factor", factors));
  LK_ASSIGN_OR_RETURN(scaling.low_freq_factor, rope.RequiredNumber("low_freq_factor", factors));
  LK_ASSIGN_OR_RETURN(scaling.high_freq_factor, rope.RequiredNumber("high_freq_factor", factors));
  LK_ASSIGN_OR_RETURN(
      scaling.original_max_position_embeddings,
      rope.RequiredNumber("original_max_position_embeddings", {1.0, double{1 << 24}}));
  if (scaling.high_freq_factor <= scaling.low_freq_factor) {
    return rope.Error("high_freq_factor",
                      absl::StrCat("more than low_freq_factor ", scaling.low_freq_factor));
  }
  return scaling;
}

// Reads rope_scaling or rope_parameters.
struct Rope {
  RopeScaling scaling;
  std::optional<double> theta;
};

absl::StatusOr<Rope> ReadRope(const JsonFields& rope) {
  Rope result;
  LK_RETURN_IF_ERROR(RefusePartialRotary(rope));
  LK_ASSIGN_OR_RETURN(result.theta, rope.Number("rope_theta", {1e-3, 1e12}));
  LK_ASSIGN_OR_RETURN(const auto new_name, rope.String("rope_type"));
  LK_ASSIGN_OR_RETURN(const auto old_name, rope.String("type"));
  if (new_name.has_value() && old_name.has_value() && *new_name != *old_name) {
    return rope.Error("type", absl::StrCat("the same as rope_type ", *new_name));
  }
  const std::string type = new_name.has_value() ? *new_name : old_name.value_or("default");
  if (type == "linear") {
    RopeLinear linear;
    LK_ASSIGN_OR_RETURN(linear.factor, rope.RequiredNumber("factor", {1e-6, 1e6}));
    result.scaling = linear;
  } else if (type == "llama3") {
    LK_ASSIGN_OR_RETURN(result.scaling, ReadLlama3(rope));
  } else if (type != "default") {
    return Unsupported(rope, new_name.has_value() ? "rope_type" : "type",
                       "\"default\", \"linear\" or \"llama3\"");
  }
  return result;
}

absl::Status ReadRotary(const JsonFields& fields, ModelConfig& config) {
  LK_RETURN_IF_ERROR(RefusePartialRotary(fields));
  LK_ASSIGN_OR_RETURN(const auto theta, fields.Number("rope_theta", {1e-3, 1e12}));
  LK_ASSIGN_OR_RETURN(const auto scaling, fields.Object("rope_scaling"));
  LK_ASSIGN_OR_RETURN(const auto parameters, fields.Object("rope_parameters"));
  config.rope_theta = theta.value_or(10000.0);
  std::optional<RopeScaling> before;
  for (const auto& object : {scaling, parameters}) {
    if (!object.has_value()) continue;
    LK_ASSIGN_OR_RETURN(const Rope rope, ReadRope(*object));
    if (before.has_value() && *before != rope.scaling) {
      return absl::InvalidArgumentError(
          absl::StrCat(object->name(), ": another scaling than rope_scaling, expected the same"));
    }
    before = config.rope_scaling = rope.scaling;
    if (rope.theta.has_value()) config.rope_theta = *rope.theta;
  }
  return absl::OkStatus();
}

// Returns how many of Qwen's layers see a window only.
absl::StatusOr<int64_t> CountSlidingLayers(const JsonFields& fields, int64_t n_layers) {
  const json* types = fields.Find("layer_types");
  if (types == nullptr) {
    LK_ASSIGN_OR_RETURN(const auto first, fields.Int("max_window_layers", {0, 1 << 16}));
    return std::max<int64_t>(0, n_layers - first.value_or(28));
  }
  const std::string expected =
      absl::StrCat("\"full_attention\" or \"sliding_attention\" for each of ", n_layers, " layers");
  if (!types->is_array() || static_cast<int64_t>(types->size()) != n_layers) {
    return fields.Error("layer_types", expected);
  }
  int64_t n_sliding = 0;
  for (const json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return fields.Error("layer_types", expected);
    }
    n_sliding += type == "sliding_attention" ? 1 : 0;
  }
  return n_sliding;
}

// Mistral has a window in all layers, unless it is null. Qwen's needs use_sliding_window, and may
// spare some layers: that we do not compute.
absl::Status ReadSlidingWindow(const JsonFields& fields, ModelConfig& config) {
  if (Is(config, kLlama)) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(auto window, fields.Int("sliding_window", {1, 1 << 24}));
  if (!fields.Has("sliding_window")) window = 4096;
  if (!Is(config, kMistral)) {
    LK_ASSIGN_OR_RETURN(const auto use, fields.Bool("use_sliding_window"));
    if (!use.value_or(false)) return absl::OkStatus();
    LK_ASSIGN_OR_RETURN(const int64_t n_sliding, CountSlidingLayers(fields, config.n_layers));
    if (n_sliding == 0) return absl::OkStatus();
    if (n_sliding < config.n_layers && window.has_value()) {
      return Unsupported(fields, "use_sliding_window", "a window in all layers or in none");
    }
  }
  if (window.has_value()) config.sliding_window = static_cast<int32_t>(*window);
  return absl::OkStatus();
}

absl::Status ReadMathematics(const JsonFields& fields, ModelConfig& config) {
  LK_ASSIGN_OR_RETURN(const auto eps, fields.Number("rms_norm_eps", {1e-30, 1.0}));
  LK_ASSIGN_OR_RETURN(const auto tied, fields.Bool("tie_word_embeddings"));
  LK_ASSIGN_OR_RETURN(const auto attention_bias, fields.Bool("attention_bias"));
  LK_ASSIGN_OR_RETURN(const auto mlp_bias, fields.Bool("mlp_bias"));
  config.rms_norm_eps = static_cast<float>(eps.value_or(1e-6));
  config.tied_embeddings = tied.value_or(false);
  if (Is(config, kLlama) || Is(config, kQwen3)) {
    config.attention_bias = config.output_bias = attention_bias.value_or(false);
  }
  if (Is(config, kQwen2)) config.attention_bias = true;
  if (Is(config, kLlama)) config.mlp_bias = mlp_bias.value_or(false);
  config.qk_norm = Is(config, kQwen3);
  return ReadSlidingWindow(fields, config);
}

// Reads an id or a list of ids; nullopt when the field is absent or null.
absl::StatusOr<std::optional<std::vector<int32_t>>> ReadIds(const JsonFields& fields,
                                                            const char* key, int32_t vocab_size) {
  const json* value = fields.Find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = absl::StrCat("ids in 0..", vocab_size - 1);
  const json list = value->is_array() ? *value : json::array({*value});
  if (list.size() > kMaxEosTokens) return fields.Error(key, expected);
  std::vector<int32_t> ids;
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(vocab_size)) {
      return fields.Error(key, expected);
    }
    const int32_t token = id.get<int32_t>();
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  }
  return ids;
}

// bos and eos: from the first file that names them, else transformers' defaults. A null in
// config.json means that there is none.
absl::Status ReadTokens(const JsonFields& fields, const JsonFields* generation,
                        ModelConfig& config) {
  struct Id {
    const char* key;
    std::optional<int32_t> fallback;
  };
  const auto read = [&](const Id& id) -> absl::StatusOr<std::vector<int32_t>> {
    for (const JsonFields* source : {generation, &fields}) {
      if (source == nullptr) continue;
      LK_ASSIGN_OR_RETURN(auto ids, ReadIds(*source, id.key, config.vocab_size));
      if (ids.has_value()) return *std::move(ids);
    }
    if (fields.Has(id.key) || id.fallback.value_or(config.vocab_size) >= config.vocab_size) {
      return std::vector<int32_t>();
    }
    return std::vector<int32_t>{*id.fallback};
  };
  LK_ASSIGN_OR_RETURN(const std::vector<int32_t> bos,
                      read({"bos_token_id", FamilyOf(config).bos_token}));
  if (!bos.empty()) config.bos_token = bos[0];
  LK_ASSIGN_OR_RETURN(config.eos_tokens, read({"eos_token_id", FamilyOf(config).eos_token}));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::optional<std::string_view> generation_json) {
  LK_ASSIGN_OR_RETURN(const json object, ParseJsonObject(config_json, "config.json", kMaxDepth));
  const JsonFields fields(object, "config.json");
  ModelConfig config;
  LK_RETURN_IF_ERROR(ReadArchitecture(fields, config));
  LK_RETURN_IF_ERROR(RefuseUnsupported(fields));
  LK_RETURN_IF_ERROR(ReadSizes(fields, config));
  LK_RETURN_IF_ERROR(ReadRotary(fields, config));
  LK_RETURN_IF_ERROR(ReadMathematics(fields, config));
  if (!generation_json.has_value()) {
    LK_RETURN_IF_ERROR(ReadTokens(fields, nullptr, config));
    return config;
  }
  const std::string name = "generation_config.json";
  LK_ASSIGN_OR_RETURN(const json generation, ParseJsonObject(*generation_json, name, kMaxDepth));
  const JsonFields generation_fields(generation, name);
  LK_RETURN_IF_ERROR(ReadTokens(fields, &generation_fields, config));
  return config;
}

}  // namespace lowkey

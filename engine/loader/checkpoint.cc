#include "engine/loader/checkpoint.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/load_account.h"
#include "engine/base/status_macros.h"
#include "engine/loader/config_json.h"
#include "engine/loader/gguf_config.h"
#include "engine/loader/grouped_checkpoint.h"
#include "engine/loader/mapped_file.h"
#include "engine/loader/tensor_table.h"

namespace lowkey {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Holds what a Hugging Face directory's JSON files say.
struct DirectoryConfig {
  ModelConfig model;
  std::optional<GroupedConfig> grouped;
};

absl::StatusOr<DirectoryConfig> ReadConfig(const std::string& directory) {
  LK_ASSIGN_OR_RETURN(const auto config,
                      MappedFile::Open(absl::StrCat(directory, "/config.json"), kMaxConfigBytes));
  auto generation =
      MappedFile::Open(absl::StrCat(directory, "/generation_config.json"), kMaxConfigBytes);
  if (!generation.ok() && !absl::IsNotFound(generation.status())) return generation.status();
  DirectoryConfig result;
  LK_ASSIGN_OR_RETURN(
      result.model,
      ParseModelConfig(config->text(),
                       generation.ok() ? std::make_optional((*generation)->text()) : std::nullopt));
  LK_ASSIGN_OR_RETURN(result.grouped, ParseGroupedConfig(config->text()));
  return result;
}

// A checkpoint's names, and how its linear maps are packed, where they are.
struct Format {
  const TensorNames& names;
  std::optional<GroupedConfig> grouped;
};

// Takes the weight of `linear`, a name without .weight.
absl::StatusOr<TensorView> TakeWeight(const std::string& linear, const Format& format,
                                      const std::vector<int64_t>& shape, TensorTable& table) {
  if (!IsGrouped(table, linear)) return table.Take(absl::StrCat(linear, ".weight"), shape);
  if (format.grouped.has_value()) return TakeGrouped(table, linear, *format.grouped, shape);
  return absl::InvalidArgumentError(absl::StrCat(
      table.Where(absl::StrCat(linear, ".qweight")),
      ": packed weights, expected config.json to describe them in quantization_config"));
}

absl::Status TakeLinears(const std::string& prefix, const Format& format, const ModelConfig& config,
                         TensorTable& table, LayerTensors& layer) {
  const TensorNames& names = format.names;
  const int64_t hidden = config.hidden_dim, ffn = config.ffn_dim;
  const int64_t q = int64_t{config.n_heads} * config.head_dim;
  const int64_t kv = int64_t{config.n_kv_heads} * config.head_dim;
  struct Linear {
    const char* name;
    int64_t out, in;
    bool has_bias;
    TensorView *weight, *bias;
  };
  const Linear linears[] = {
      {names.q, q, hidden, config.attention_bias, &layer.q_proj, &layer.q_bias},
      {names.k, kv, hidden, config.attention_bias, &layer.k_proj, &layer.k_bias},
      {names.v, kv, hidden, config.attention_bias, &layer.v_proj, &layer.v_bias},
      {names.o, hidden, q, config.output_bias, &layer.o_proj, &layer.o_bias},
      {names.gate, ffn, hidden, config.mlp_bias, &layer.gate_proj, &layer.gate_bias},
      {names.up, ffn, hidden, config.mlp_bias, &layer.up_proj, &layer.up_bias},
      {names.down, hidden, ffn, config.mlp_bias, &layer.down_proj, &layer.down_bias},
  };
  for (const Linear& linear : linears) {
    const std::string name = absl::StrCat(prefix, linear.name);
    LK_ASSIGN_OR_RETURN(*linear.weight, TakeWeight(name, format, {linear.out, linear.in}, table));
    if (!linear.has_bias) {
      if (IsGrouped(table, name)) LK_RETURN_IF_ERROR(TakeZeroBias(table, name, linear.out));
      continue;
    }
    LK_ASSIGN_OR_RETURN(*linear.bias, table.Take(absl::StrCat(name, ".bias"), {linear.out}));
  }
  return absl::OkStatus();
}

absl::Status TakeNorms(const std::string& prefix, const TensorNames& names,
                       const ModelConfig& config, TensorTable& table, LayerTensors& layer) {
  const int64_t hidden = config.hidden_dim, head_dim = config.head_dim;
  LK_ASSIGN_OR_RETURN(layer.attention_norm,
                      table.Take(absl::StrCat(prefix, names.attention_norm), {hidden}));
  LK_ASSIGN_OR_RETURN(layer.ffn_norm, table.Take(absl::StrCat(prefix, names.ffn_norm), {hidden}));
  if (!config.qk_norm) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(layer.q_norm, table.Take(absl::StrCat(prefix, names.q_norm), {head_dim}));
  LK_ASSIGN_OR_RETURN(layer.k_norm, table.Take(absl::StrCat(prefix, names.k_norm), {head_dim}));
  return absl::OkStatus();
}

absl::Status TakeAllTensors(const Format& format, TensorTable& table, Checkpoint& checkpoint) {
  const TensorNames& names = format.names;
  const ModelConfig& config = checkpoint.config;
  const int64_t vocab = config.vocab_size, hidden = config.hidden_dim;
  LK_ASSIGN_OR_RETURN(checkpoint.embedding, table.Take(names.embedding, {vocab, hidden}));
  LK_ASSIGN_OR_RETURN(checkpoint.final_norm, table.Take(names.final_norm, {hidden}));
  checkpoint.lm_head = checkpoint.embedding;
  if (!config.tied_embeddings) {
    LK_ASSIGN_OR_RETURN(checkpoint.lm_head,
                        TakeWeight(names.lm_head, format, {vocab, hidden}, table));
  }
  for (int32_t i = 0; i < config.n_layers; ++i) {
    LayerTensors layer;
    const std::string prefix = absl::StrCat(names.layers, i, ".");
    LK_RETURN_IF_ERROR(TakeLinears(prefix, format, config, table, layer));
    LK_RETURN_IF_ERROR(TakeNorms(prefix, names, config, table, layer));
    checkpoint.layers.push_back(std::move(layer));
  }
  return absl::OkStatus();
}

absl::Status TakeDirectory(const std::string& directory, LoadAccount& account,
                           Checkpoint& checkpoint) {
  LK_ASSIGN_OR_RETURN(DirectoryConfig config, ReadConfig(directory));
  checkpoint.config = std::move(config.model);
  LK_ASSIGN_OR_RETURN(TensorTable table, TensorTable::OpenDirectory(directory, account));
  LK_RETURN_IF_ERROR(TakeAllTensors({kHuggingFaceNames, config.grouped}, table, checkpoint));
  checkpoint.files = table.files();
  const auto is_harmless = [&](std::string_view name) {
    // Tables that old versions of transformers stored: computed from the config here.
    for (const char* suffix :
         {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"}) {
      if (absl::EndsWith(std::string(name), suffix)) return true;
    }
    return checkpoint.config.tied_embeddings && name == "lm_head.weight";
  };
  return table.CheckNothingLeft(
      is_harmless,
      absl::StrCat(checkpoint.config.architecture, " with this config.json has no such weight"));
}

absl::Status TakeGguf(const Gguf& gguf, Checkpoint& checkpoint) {
  LK_ASSIGN_OR_RETURN(GgufConfig config, ReadGgufConfig(gguf.index));
  checkpoint.config = std::move(config.model);
  TensorTable table = TensorTable::OfGguf(gguf);
  LK_RETURN_IF_ERROR(TakeAllTensors({kGgufNames, std::nullopt}, table, checkpoint));
  checkpoint.files = table.files();
  if (config.interleaved_qk) {
    for (LayerTensors& layer : checkpoint.layers) {
      layer.q_proj.interleaved_rows = layer.k_proj.interleaved_rows = checkpoint.config.head_dim;
    }
  }
  const auto is_harmless = [&](std::string_view name) {
    return name == kRopeFactorsName &&
           std::holds_alternative<RopeFactors>(checkpoint.config.rope_scaling);
  };
  return table.CheckNothingLeft(
      is_harmless, absl::StrCat(checkpoint.config.architecture, " in GGUF has no such weight"));
}

int64_t CountParameters(const Checkpoint& checkpoint) {
  const auto count = [](const TensorView& t) { return t.data == nullptr ? 0 : t.size(); };
  int64_t n = count(checkpoint.embedding) + count(checkpoint.final_norm);
  if (!checkpoint.config.tied_embeddings) n += count(checkpoint.lm_head);
  for (const LayerTensors& l : checkpoint.layers) {
    for (const TensorView* t :
         {&l.attention_norm, &l.q_proj, &l.k_proj, &l.v_proj, &l.o_proj, &l.q_bias, &l.k_bias,
          &l.v_bias, &l.o_bias, &l.q_norm, &l.k_norm, &l.ffn_norm, &l.gate_proj, &l.up_proj,
          &l.down_proj, &l.gate_bias, &l.up_bias, &l.down_bias}) {
      n += count(*t);
    }
  }
  return n;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenCheckpoint(const ModelFiles& files) {
  LoadAccount account;
  auto checkpoint = std::make_shared<Checkpoint>();
  LK_RETURN_IF_ERROR(files.gguf != nullptr ? TakeGguf(*files.gguf, *checkpoint)
                                           : TakeDirectory(files.directory, account, *checkpoint));
  LK_RETURN_IF_ERROR(OpenBundle(files.directory, account, *checkpoint));
  for (const auto& file : checkpoint->files) {
    checkpoint->file_bytes += static_cast<int64_t>(file->size_bytes());
  }
  checkpoint->n_parameters = CountParameters(*checkpoint);
  return checkpoint;
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenCheckpoint(const std::string& model_path) {
  LK_ASSIGN_OR_RETURN(const ModelFiles files, OpenModelFiles(model_path));
  return OpenCheckpoint(files);
}

}  // namespace lowkey

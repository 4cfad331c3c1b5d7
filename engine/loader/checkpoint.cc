#include "engine/loader/checkpoint.h"

#include <dirent.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/loader/config_json.h"
#include "engine/loader/json_fields.h"
#include "engine/loader/mapped_file.h"
#include "engine/loader/safetensors.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr size_t kMaxIndexBytes = size_t{64} << 20;
constexpr size_t kMaxShards = 4096;
constexpr int kMaxIndexDepth = 8;
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

absl::StatusOr<std::shared_ptr<const MappedFile>> OpenText(const std::string& path,
                                                           size_t max_bytes) {
  LK_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  if (file->size_bytes() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(file->name(), ": ", file->size_bytes(),
                                                   " bytes, expected at most ", max_bytes));
  }
  return file;
}

absl::Status CheckDirectory(const std::string& directory) {
  DIR* dir = opendir(directory.c_str());
  if (dir != nullptr) {
    closedir(dir);
    return absl::OkStatus();
  }
  const std::string message =
      absl::StrCat(directory, ": ", std::strerror(errno),
                   ", expected a directory with config.json and ", kSingleFile);
  return errno == EACCES ? absl::PermissionDeniedError(message) : absl::NotFoundError(message);
}

absl::StatusOr<ModelConfig> ReadConfig(const std::string& directory) {
  LK_ASSIGN_OR_RETURN(const auto config,
                      OpenText(absl::StrCat(directory, "/config.json"), kMaxConfigBytes));
  auto generation = OpenText(absl::StrCat(directory, "/generation_config.json"), kMaxConfigBytes);
  if (!generation.ok() && !absl::IsNotFound(generation.status())) return generation.status();
  return ParseModelConfig(
      config->text(), generation.ok() ? std::make_optional((*generation)->text()) : std::nullopt);
}

// The tensors of all files by name, each from the file that the index assigns it to.
class TensorTable {
 public:
  static absl::StatusOr<TensorTable> Open(const std::string& directory) {
    TensorTable table;
    auto single = OpenSafetensors(absl::StrCat(directory, "/", kSingleFile));
    if (!single.ok() && !absl::IsNotFound(single.status())) return single.status();
    if (single.ok()) {
      table.TakeAll(*std::move(single));
      return table;
    }
    auto index = OpenText(absl::StrCat(directory, "/", kIndexFile), kMaxIndexBytes);
    if (absl::IsNotFound(index.status())) {
      return absl::NotFoundError(absl::StrCat(directory, ": no ", kSingleFile, " and no ",
                                              kIndexFile, ", expected one of them"));
    }
    LK_RETURN_IF_ERROR(index.status());
    LK_RETURN_IF_ERROR(table.OpenShards(directory, (*index)->text()));
    return table;
  }

  // The tensor, which must have this shape and be F32, F16 or BF16.
  absl::StatusOr<TensorView> Take(const std::string& name, const std::vector<int64_t>& shape) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          origin_, ": ", name, ": missing, expected a tensor of shape ", ShapeString(shape)));
    }
    taken_.insert(name);
    const Entry& entry = it->second;
    const std::string where = absl::StrCat(entry.file, ": ", name);
    if (!entry.dtype_is_usable) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": dtype ", entry.dtype, ", expected F32, F16 or BF16"));
    }
    if (entry.view.shape != shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": shape ", ShapeString(entry.view.shape), ", expected ", ShapeString(shape)));
    }
    return entry.view;
  }

  // Everything in the files was taken, or does not change the result.
  absl::Status CheckNothingLeft(const ModelConfig& config) const {
    for (const auto& [name, entry] : tensors_) {
      if (taken_.contains(name) || IsHarmless(name, config)) continue;
      const std::string shape =
          entry.dtype_is_usable ? absl::StrCat(" of shape ", ShapeString(entry.view.shape)) : "";
      return absl::InvalidArgumentError(absl::StrCat(entry.file, ": ", name, ": a tensor", shape,
                                                     ", expected none: ", config.architecture,
                                                     " with this config.json has no such weight"));
    }
    return absl::OkStatus();
  }

  std::vector<std::shared_ptr<const MappedFile>> files() const { return files_; }

 private:
  struct Entry {
    std::string file;
    std::string dtype;
    bool dtype_is_usable = false;  // F32, F16, BF16
    TensorView view;
  };

  static bool IsHarmless(const std::string& name, const ModelConfig& config) {
    // Tables that old versions of transformers stored: computed from the config here.
    for (const char* suffix :
         {"rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"}) {
      if (absl::EndsWith(name, suffix)) return true;
    }
    return config.tied_embeddings && name == "lm_head.weight";
  }

  static Entry MakeEntry(const std::string& file, const TensorView& view) {
    const bool usable =
        view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
    return {file, std::string(DTypeName(view.dtype)), usable, view};
  }

  void TakeAll(Safetensors file) {
    origin_ = file.file->name();
    for (auto& [name, view] : file.index.tensors) tensors_[name] = MakeEntry(origin_, view);
    for (auto& [name, dtype] : file.index.foreign_dtypes)
      tensors_[name] = {origin_, dtype, false, {}};
    files_.push_back(std::move(file.file));
  }

  // Adds tensor `name` of an opened shard.
  absl::Status Add(const Safetensors& shard, const std::string& name) {
    const std::string& file = shard.file->name();
    if (const auto it = shard.index.tensors.find(name); it != shard.index.tensors.end()) {
      tensors_[name] = MakeEntry(file, it->second);
      return absl::OkStatus();
    }
    const auto foreign = shard.index.foreign_dtypes.find(name);
    if (foreign == shard.index.foreign_dtypes.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(file, ": ", name, ": missing, expected here by ", kIndexFile));
    }
    tensors_[name] = {file, foreign->second, false, {}};
    return absl::OkStatus();
  }

  absl::Status OpenShards(const std::string& directory, std::string_view text) {
    origin_ = kIndexFile;
    LK_ASSIGN_OR_RETURN(const json index, ParseJsonObject(text, kIndexFile, kMaxIndexDepth));
    const JsonFields fields(index, kIndexFile);
    LK_ASSIGN_OR_RETURN(const auto weight_map, fields.Object("weight_map"));
    if (!weight_map.has_value()) return fields.Error("weight_map", "an object");
    std::map<std::string, std::vector<std::string>> names_by_file;
    for (const auto& [name, file] : index["weight_map"].items()) {
      if (!file.is_string() || !IsPlainFileName(file.get<std::string>())) {
        return weight_map->Error(name.c_str(), "the name of a file in this directory");
      }
      names_by_file[file.get<std::string>()].push_back(name);
      if (names_by_file.size() > kMaxShards) {
        return fields.Error("weight_map", absl::StrCat("at most ", kMaxShards, " files"));
      }
    }
    for (const auto& [file, names] : names_by_file) {
      LK_ASSIGN_OR_RETURN(Safetensors shard, OpenSafetensors(absl::StrCat(directory, "/", file)));
      for (const std::string& name : names) LK_RETURN_IF_ERROR(Add(shard, name));
      files_.push_back(std::move(shard.file));
    }
    return absl::OkStatus();
  }

  static bool IsPlainFileName(const std::string& name) {
    return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
           name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  }

  std::string origin_;  // the file that should name a tensor: the only one, or the index
  std::map<std::string, Entry> tensors_;
  absl::flat_hash_set<std::string> taken_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

absl::Status TakeLayer(const std::string& prefix, const ModelConfig& config, TensorTable& table,
                       LayerTensors& layer) {
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
      {"self_attn.q_proj", q, hidden, config.attention_bias, &layer.q_proj, &layer.q_bias},
      {"self_attn.k_proj", kv, hidden, config.attention_bias, &layer.k_proj, &layer.k_bias},
      {"self_attn.v_proj", kv, hidden, config.attention_bias, &layer.v_proj, &layer.v_bias},
      {"self_attn.o_proj", hidden, q, config.attention_bias, &layer.o_proj, &layer.o_bias},
      {"mlp.gate_proj", ffn, hidden, config.mlp_bias, &layer.gate_proj, &layer.gate_bias},
      {"mlp.up_proj", ffn, hidden, config.mlp_bias, &layer.up_proj, &layer.up_bias},
      {"mlp.down_proj", hidden, ffn, config.mlp_bias, &layer.down_proj, &layer.down_bias},
  };
  for (const Linear& linear : linears) {
    const std::string name = absl::StrCat(prefix, linear.name);
    LK_ASSIGN_OR_RETURN(*linear.weight,
                        table.Take(absl::StrCat(name, ".weight"), {linear.out, linear.in}));
    if (!linear.has_bias) continue;
    LK_ASSIGN_OR_RETURN(*linear.bias, table.Take(absl::StrCat(name, ".bias"), {linear.out}));
  }
  LK_ASSIGN_OR_RETURN(layer.attention_norm,
                      table.Take(absl::StrCat(prefix, "input_layernorm.weight"), {hidden}));
  LK_ASSIGN_OR_RETURN(
      layer.ffn_norm,
      table.Take(absl::StrCat(prefix, "post_attention_layernorm.weight"), {hidden}));
  return absl::OkStatus();
}

absl::Status TakeAllTensors(TensorTable& table, Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config;
  const int64_t vocab = config.vocab_size, hidden = config.hidden_dim;
  LK_ASSIGN_OR_RETURN(checkpoint.embedding,
                      table.Take("model.embed_tokens.weight", {vocab, hidden}));
  LK_ASSIGN_OR_RETURN(checkpoint.final_norm, table.Take("model.norm.weight", {hidden}));
  checkpoint.lm_head = checkpoint.embedding;
  if (!config.tied_embeddings) {
    LK_ASSIGN_OR_RETURN(checkpoint.lm_head, table.Take("lm_head.weight", {vocab, hidden}));
  }
  for (int32_t i = 0; i < config.n_layers; ++i) {
    LayerTensors layer;
    LK_RETURN_IF_ERROR(TakeLayer(absl::StrCat("model.layers.", i, "."), config, table, layer));
    checkpoint.layers.push_back(std::move(layer));
  }
  return table.CheckNothingLeft(config);
}

int64_t CountParameters(const Checkpoint& checkpoint) {
  const auto count = [](const TensorView& t) { return t.data == nullptr ? 0 : t.size(); };
  int64_t n = count(checkpoint.embedding) + count(checkpoint.final_norm);
  if (!checkpoint.config.tied_embeddings) n += count(checkpoint.lm_head);
  for (const LayerTensors& l : checkpoint.layers) {
    for (const TensorView* t :
         {&l.attention_norm, &l.q_proj, &l.k_proj, &l.v_proj, &l.o_proj, &l.q_bias, &l.k_bias,
          &l.v_bias, &l.o_bias, &l.ffn_norm, &l.gate_proj, &l.up_proj, &l.down_proj, &l.gate_bias,
          &l.up_bias, &l.down_bias}) {
      n += count(*t);
    }
  }
  return n;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenCheckpoint(const std::string& directory) {
  LK_RETURN_IF_ERROR(CheckDirectory(directory));
  auto checkpoint = std::make_shared<Checkpoint>();
  LK_ASSIGN_OR_RETURN(checkpoint->config, ReadConfig(directory));
  LK_ASSIGN_OR_RETURN(TensorTable table, TensorTable::Open(directory));
  LK_RETURN_IF_ERROR(TakeAllTensors(table, *checkpoint));
  checkpoint->files = table.files();
  for (const auto& file : checkpoint->files) {
    checkpoint->file_bytes += static_cast<int64_t>(file->size_bytes());
  }
  checkpoint->n_parameters = CountParameters(*checkpoint);
  return checkpoint;
}

}  // namespace lowkey

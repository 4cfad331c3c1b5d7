#ifndef LOWKEY_ENGINE_LOADER_TENSOR_TABLE_H_
#define LOWKEY_ENGINE_LOADER_TENSOR_TABLE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/load_account.h"
#include "engine/base/tensor.h"
#include "engine/loader/gguf_files.h"
#include "engine/loader/mapped_file.h"
#include "engine/loader/safetensors.h"

namespace lowkey {

// A format's names of tensors; names of a layer's tensors follow its prefix and number.
struct TensorNames {
  const char *embedding, *final_norm, *layers;
  const char *lm_head, *q, *k, *v, *o, *gate, *up, *down;  // with .weight or .bias
  const char *attention_norm, *ffn_norm, *q_norm, *k_norm;
};
inline constexpr TensorNames kHuggingFaceNames = {
    "model.embed_tokens.weight",
    "model.norm.weight",
    "model.layers.",
    "lm_head",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
};
inline constexpr TensorNames kGgufNames = {
    "token_embd.weight",
    "output_norm.weight",
    "blk.",
    "output",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "attn_norm.weight",
    "ffn_norm.weight",
    "attn_q_norm.weight",
    "attn_k_norm.weight",
};

// The tensors of a checkpoint's files by name; knows which of them were taken. Not thread-safe.
class TensorTable {
 public:
  // Makes an empty table; `origin` is the file that should have named the tensors.
  explicit TensorTable(std::string origin = "") : origin_(std::move(origin)) {}

  // Opens model.safetensors, or the shards that model.safetensors.index.json assigns tensors to.
  // NOT_FOUND when there is neither, or a shard is missing; INVALID_ARGUMENT as in safetensors.h
  // and for a malformed index.
  // Headers are charged to the account, and no two names may lead to one file.
  static absl::StatusOr<TensorTable> OpenDirectory(const std::string& directory,
                                                   LoadAccount& account);

  // Opens one safetensors file; INVALID_ARGUMENT when `name` is not a plain file's, or as in
  // safetensors.h.
  static absl::StatusOr<TensorTable> OpenFile(const std::string& directory, const std::string& name,
                                              LoadAccount& account);

  static TensorTable OfGguf(const Gguf& gguf);

  bool Has(const std::string& name) const { return tensors_.contains(name); }

  // Calls body(name, tensor) for every tensor of a dtype that LoadFloats reads, by name.
  void Each(absl::FunctionRef<void(const std::string&, const TensorView&)> body) const;

  // Returns the first dimension of a matrix; INVALID_ARGUMENT when it is out of range.
  absl::StatusOr<int64_t> Rows(const std::string& name, int64_t min, int64_t max) const;

  // Returns a tensor; INVALID_ARGUMENT unless it has this shape and a dtype that LoadFloats reads.
  absl::StatusOr<TensorView> Take(const std::string& name, const std::vector<int64_t>& shape);

  // Returns a tensor of I32; INVALID_ARGUMENT unless it has this shape and dtype.
  absl::StatusOr<TensorView> TakeInts(const std::string& name, const std::vector<int64_t>& shape);

  // Returns `<file>: <tensor>`, which begins messages.
  std::string Where(const std::string& name) const;

  // INVALID_ARGUMENT `<file>: <tensor>: ... expected none: <reason>` unless every tensor was taken
  // or is harmless.
  absl::Status CheckNothingLeft(const std::function<bool(std::string_view)>& is_harmless,
                                const std::string& reason) const;

  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }

 private:
  struct Entry {
    std::string file;
    std::string dtype;
    bool dtype_is_usable = false;
    TensorView view;
  };

  absl::StatusOr<const Entry*> FindAndMark(const std::string& name,
                                           const std::vector<int64_t>& shape);
  static absl::StatusOr<TensorView> CheckShape(const Entry& entry, const std::string& where,
                                               const std::vector<int64_t>& shape);
  static Entry MakeEntry(const std::string& file, const TensorView& view);
  void TakeAll(std::shared_ptr<const MappedFile> file,
               const absl::flat_hash_map<std::string, TensorView>& tensors,
               const absl::flat_hash_map<std::string, std::string>& foreign_dtypes);
  absl::Status Add(const Safetensors& shard, const std::string& name);
  absl::Status OpenShards(const std::string& directory, std::string_view index_json,
                          LoadAccount& account);

  std::string origin_;  // the file that should name a tensor: the only one, or the index
  const char* dtypes_ = "F32, F16 or BF16";
  std::map<std::string, Entry> tensors_;
  absl::flat_hash_set<std::string> taken_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_TENSOR_TABLE_H_

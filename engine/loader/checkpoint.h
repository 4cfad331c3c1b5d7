#ifndef LOWKEY_ENGINE_LOADER_CHECKPOINT_H_
#define LOWKEY_ENGINE_LOADER_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/config/model_config.h"
#include "engine/loader/bundle.h"
#include "engine/loader/model_files.h"

namespace lowkey {

class MappedFile;

// Weights of one decoder layer, as mapped from the files: row-major [out, in] matrices. Biases, and
// the norms of q and k, are absent (data == nullptr) unless the config asks for them. q_proj and
// k_proj of GGUF's `llama` are interleaved, and the matrices of AWQ and GPTQ checkpoints are in
// several tensors (TensorView::int4): read rows with LoadRow.
struct LayerTensors {
  TensorView attention_norm;  // [hidden_dim]
  TensorView q_proj;          // [n_heads * head_dim, hidden_dim]
  TensorView k_proj, v_proj;  // [n_kv_heads * head_dim, hidden_dim]
  TensorView o_proj;          // [hidden_dim, n_heads * head_dim]
  TensorView q_bias, k_bias, v_bias, o_bias;
  TensorView q_norm, k_norm;      // [head_dim]
  TensorView ffn_norm;            // [hidden_dim]
  TensorView gate_proj, up_proj;  // [ffn_dim, hidden_dim]
  TensorView down_proj;           // [hidden_dim, ffn_dim]
  TensorView gate_bias, up_bias, down_bias;
};

// A checkpoint whose every tensor was found, with the shape that the config calls for and a dtype
// that LoadFloats reads. Views point into read-only maps that live as long as this object.
// Immutable: any thread may read.
struct Checkpoint {
  ModelConfig config;
  TensorView embedding;   // [vocab_size, hidden_dim]
  TensorView final_norm;  // [hidden_dim]
  TensorView lm_head;     // [vocab_size, hidden_dim]; the embedding's view when tied
  std::vector<LayerTensors> layers;
  std::vector<BundledMechanism> mechanisms;  // of lowkey.json, each name once
  std::vector<MeasuredQuality> measured;     // of lowkey.json
  // The highest perplexity over standard's that a chosen mechanism may have; of lowkey.json.
  std::optional<double> max_perplexity_ratio;
  int64_t n_parameters = 0;  // without those of lowkey.json
  int64_t file_bytes = 0;
  std::vector<std::shared_ptr<const MappedFile>> files;
};

// Opens a model: GGUF (see FindGguf), or a Hugging Face directory: config.json,
// generation_config.json (optional), model.safetensors or model.safetensors.index.json with its
// shards; and lowkey.json beside either (bundle.h). Maps the files, reads their headers, copies no
// weights. Errors name file, tensor, actual and expected:
//   NOT_FOUND         one of the files is missing
//   INVALID_ARGUMENT  malformed JSON, metadata or header, a field out of range, a tensor missing,
//                     misshapen, of another dtype or outside its file
//   UNIMPLEMENTED     an architecture or a setting that would change the result and that we do not
//                     compute
absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenCheckpoint(const ModelFiles& files);
// Opens the files too: OpenModelFiles' errors.
absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenCheckpoint(const std::string& model_path);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_CHECKPOINT_H_

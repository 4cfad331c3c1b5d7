#ifndef LOWKEY_ENGINE_LOADER_GGUF_CONFIG_H_
#define LOWKEY_ENGINE_LOADER_GGUF_CONFIG_H_

#include "absl/status/statusor.h"
#include "engine/config/model_config.h"
#include "engine/loader/gguf.h"

namespace lowkey {

// The tensor that divides the frequencies of `llama` (RopeFactors): F32 [head_dim / 2].
inline constexpr char kRopeFactorsName[] = "rope_freqs.weight";

struct GgufConfig {
  ModelConfig model;
  // Rows of q and k stand in the order that rotates neighbors (TensorView::interleaved_rows).
  bool interleaved_qk = false;
};

// Reads the configuration that a GGUF file's metadata and tensors describe: architectures `llama`,
// `qwen2` and `qwen3`. Every bound that ModelConfig states holds afterwards; the embeddings are
// tied when there is no output.weight.
//   INVALID_ARGUMENT  a key missing, of another type or out of range
//   UNIMPLEMENTED     an architecture, or a setting that changes the result and that we do not
//                     compute: experts, head counts that differ by layer, other RoPE scalings,
//                     ...
absl::StatusOr<GgufConfig> ReadGgufConfig(const GgufIndex& index);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_GGUF_CONFIG_H_

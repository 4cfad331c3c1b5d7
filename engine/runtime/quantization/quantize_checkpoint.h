#ifndef LOWKEY_ENGINE_RUNTIME_QUANTIZATION_QUANTIZE_CHECKPOINT_H_
#define LOWKEY_ENGINE_RUNTIME_QUANTIZATION_QUANTIZE_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/calibration/read_texts.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/quantization/quantize_matrix.h"

namespace lowkey {

struct QuantizeOptions {
  Rounding rounding;
  EngineOptions engine;  // threads and dtype
  // Bounds the moments that are held at once. The model reads the texts once for as many layers as
  // fit, at least one.
  int64_t moment_bytes = int64_t{2} << 30;
};

// A linear map of a layer as it was rounded.
struct QuantizedMap {
  int64_t layer = 0;
  std::string name;        // "self_attn.q_proj"
  double error_share = 0;  // of the outputs' expected square
};

struct QuantizeReport {
  std::vector<QuantizedMap> maps;
  int64_t bytes_before = 0, bytes_after = 0;  // of tensors
};

// Writes the weights of a checkpoint in Hugging Face layout to a safetensors file at `path`, the
// linear maps of the layers in GPTQ's layout (QuantizeMatrix), everything else as it is. The
// texts show what the maps' inputs are like; without one all inputs count alike.
//   FAILED_PRECONDITION a GGUF file; maps that are quantized already, or whose sizes groups or
//                       words of codes do not divide; a weight that is not finite or beyond
//                       kMaxWeight; rows that are not finite
//   UNAVAILABLE         the file cannot be written
// and MakeTextReader's errors.
absl::StatusOr<QuantizeReport> QuantizeCheckpoint(const ModelFiles& files,
                                                  std::shared_ptr<const Checkpoint> checkpoint,
                                                  TokenTexts texts, const QuantizeOptions& options,
                                                  const std::string& path,
                                                  const CalibrationProgress& progress);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_QUANTIZATION_QUANTIZE_CHECKPOINT_H_

#ifndef LOWKEY_ENGINE_LOADER_CONFIG_JSON_H_
#define LOWKEY_ENGINE_LOADER_CONFIG_JSON_H_

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/config/model_config.h"

namespace lowkey {

// Reads a Hugging Face config.json and, where there is one, generation_config.json (untrusted
// text). Every bound that ModelConfig states holds afterwards. Absent fields take the defaults of
// transformers' LlamaConfig, MistralConfig, Qwen2Config and Qwen3Config, except sizes that decide
// shapes: those must be there. Fields that a family's own code ignores are ignored here too:
// Llama's sliding_window, mlp_bias outside Llama, attention_bias of Mistral and Qwen2 (which has
// biases on q, k and v, always). quantization_config is left to ParseGroupedConfig.
//   INVALID_ARGUMENT  no JSON object, or a field of another type or out of range
//   UNIMPLEMENTED     an architecture or a setting that changes the result and that we do not
//                     compute
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view config_json,
                                             std::optional<std::string_view> generation_json);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_CONFIG_JSON_H_

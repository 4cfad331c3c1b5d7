#include "tests/testing/tiny_model.h"

#include <cstdio>

#include "engine/base/status_macros.h"

namespace lowkey {

ModelConfig TinyConfig() {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.vocab_size = 96;
  config.hidden_dim = 32;
  config.ffn_dim = 48;
  config.n_layers = 2;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 8;
  config.context_tokens = 256;
  config.bos_token = 1;
  config.eos_tokens = {2};
  return config;
}

TinyModel::TinyModel(const RandomModelOptions& options) {
  const absl::Status status = WriteRandomModel(directory_.path(), options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  LK_CHECK(status.ok());
}

}  // namespace lowkey

#ifndef LOWKEY_TESTS_TESTING_TINY_MODEL_H_
#define LOWKEY_TESTS_TESTING_TINY_MODEL_H_

#include <cstdint>
#include <string>

#include "bench/random_model.h"
#include "engine/config/model_config.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {

// A small Llama with grouped queries: vocab 96, hidden 32, ffn 48, 2 layers, 4 heads, 2 KV heads,
// head_dim 8, context 256, bos 1, eos 2. Tests edit what they are about.
ModelConfig TinyConfig();

// A random checkpoint in a directory that lives as long as this. Aborts when it cannot be written.
class TinyModel {
 public:
  explicit TinyModel(const RandomModelOptions& options);
  // TinyConfig in fp32.
  TinyModel() : TinyModel({.config = TinyConfig(), .dtype = DType::kF32, .seed = 1}) {}

  const std::string& path() const { return directory_.path(); }
  std::string File(const std::string& name) const { return directory_.File(name); }

 private:
  TempDirectory directory_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_TINY_MODEL_H_

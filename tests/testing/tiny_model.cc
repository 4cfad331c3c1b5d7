#include "tests/testing/tiny_model.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/status_macros.h"

namespace lowkey {

TempDirectory::TempDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lowkey-test-XXXXXX").string();
  LK_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

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

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  LK_CHECK(file.good());
  return bytes.str();
}

void WriteFileOrDie(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  LK_CHECK(file.good());
}

}  // namespace lowkey

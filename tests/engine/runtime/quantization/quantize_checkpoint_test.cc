// integration_quantize_test runs it on the demo model, as a user does.
#include "engine/runtime/quantization/quantize_checkpoint.h"

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_directory.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

ModelConfig Config() {
  ModelConfig config = TinyConfig();
  config.ffn_dim = 64;  // groups of 32
  config.n_layers = 3;
  return config;
}

class QuantizeCheckpointTest : public ::testing::Test {
 protected:
  QuantizeCheckpointTest() : model_({.config = Config(), .dtype = DType::kF32, .seed = 7}) {
    for (int text = 0; text < 3; ++text) {
      std::vector<int32_t>& tokens = texts_.emplace_back();
      for (int i = 0; i < 200; ++i) tokens.push_back(3 + (i * i * (7 + text) + i) % 93);
    }
    options_.engine.n_threads = 2;
  }

  absl::StatusOr<QuantizeReport> Quantize(const std::string& path, TokenTexts texts) {
    const ModelFiles files = OpenModelFiles(model_.path()).value();
    return QuantizeCheckpoint(files, OpenCheckpoint(files).value(), texts, options_, path, {});
  }
  std::string Written(const std::string& name, TokenTexts texts) {
    const std::string path = model_.File(name);
    const absl::StatusOr<QuantizeReport> report = Quantize(path, texts);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->maps.size(), 3u * 7);
    EXPECT_EQ(report->bytes_after,
              static_cast<int64_t>(std::filesystem::file_size(path)) - HeaderBytes(path));
    return ReadFileOrDie(path);
  }
  static int64_t HeaderBytes(const std::string& path) {
    const std::string bytes = ReadFileOrDie(path);
    uint64_t length;
    std::memcpy(&length, bytes.data(), sizeof(length));
    return static_cast<int64_t>(sizeof(length) + length);
  }

  const TinyModel model_;
  std::vector<std::vector<int32_t>> texts_;
  QuantizeOptions options_;
};

TEST_F(QuantizeCheckpointTest, LayersReadTogetherOrOneByOneAreTheSame) {
  const std::string together = Written("together", texts_);
  options_.moment_bytes = 1;
  EXPECT_EQ(Written("one_by_one", texts_), together);
  options_.engine.n_threads = 1;
  EXPECT_EQ(Written("one_thread", texts_), together);
  EXPECT_NE(Written("plain", {}), together);
}

TEST_F(QuantizeCheckpointTest, TextsAreChecked) {
  texts_[1][5] = 96;
  EXPECT_THAT(std::string(Quantize(model_.File("out"), texts_).status().message()),
              HasSubstr("texts[1]"));
}

}  // namespace
}  // namespace lowkey

// Every mutation of a valid checkpoint opens or is refused with a message; none crashes. What opens
// is read through, so that a view outside its file would be seen (by the kernel or a sanitizer).
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "engine/loader/checkpoint.h"
#include "engine/loader/safetensors.h"
#include "tests/testing/gguf_builder.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

double SumOf(const TensorView& t) {
  if (t.data == nullptr) return 0.0;
  std::vector<float> floats(t.size());
  LoadFloats(t, 0, t.size(), floats.data());
  return std::accumulate(floats.begin(), floats.end(), 0.0);
}

// True when it opened.
bool OpenAndRead(const std::string& directory) {
  const auto opened = OpenCheckpoint(directory);
  if (!opened.ok()) {
    EXPECT_FALSE(opened.status().message().empty());
    const absl::StatusCode code = opened.status().code();
    EXPECT_TRUE(code == absl::StatusCode::kInvalidArgument ||
                code == absl::StatusCode::kUnimplemented)
        << opened.status();
    return false;
  }
  volatile double sum = SumOf((*opened)->embedding) + SumOf((*opened)->lm_head);
  for (const LayerTensors& layer : (*opened)->layers) {
    sum = sum + SumOf(layer.q_proj) + SumOf(layer.o_proj) + SumOf(layer.down_proj) +
          SumOf(layer.ffn_norm);
  }
  return true;
}

class HostileFiles : public ::testing::Test {
 protected:
  HostileFiles() : model_({.config = SmallConfig(), .dtype = DType::kBF16, .seed = 3}) {
    weights_ = ReadFileOrDie(WeightsPath());
    config_ = ReadFileOrDie(model_.File("config.json"));
    for (int i = 7; i >= 0; --i) {
      header_bytes_ = header_bytes_ << 8 | static_cast<unsigned char>(weights_[i]);
    }
  }

  static ModelConfig SmallConfig() {
    ModelConfig config = TinyConfig();
    config.n_layers = 1, config.vocab_size = 8, config.hidden_dim = 8, config.ffn_dim = 8;
    config.head_dim = 2;
    return config;
  }

  std::string WeightsPath() const { return model_.File("model.safetensors"); }

  bool OpensWithWeights(const std::string& bytes) {
    WriteFileOrDie(WeightsPath(), bytes);
    return OpenAndRead(model_.path());
  }

  static std::string WithLength(std::string bytes, uint64_t length) {
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i));
    return bytes;
  }

  TinyModel model_;
  std::string weights_, config_;
  uint64_t header_bytes_ = 0;
};

TEST_F(HostileFiles, UntouchedOpens) { EXPECT_TRUE(OpensWithWeights(weights_)); }

TEST_F(HostileFiles, TruncationAnywhereIsRefused) {
  for (size_t size = 0; size < weights_.size(); size += size < 64 ? 1 : 97) {
    EXPECT_FALSE(OpensWithWeights(weights_.substr(0, size))) << size;
  }
  EXPECT_FALSE(OpensWithWeights(weights_.substr(0, weights_.size() - 1)));
}

TEST_F(HostileFiles, EveryFlippedBitOfTheLengthIsSurvived) {
  for (int bit = 0; bit < 64; ++bit) {
    OpensWithWeights(WithLength(weights_, header_bytes_ ^ (uint64_t{1} << bit)));
  }
}

TEST_F(HostileFiles, LiesAboutTheHeadersLengthAreRefused) {
  for (uint64_t length :
       {uint64_t{0}, uint64_t{1}, header_bytes_ - 9, header_bytes_ + 1, uint64_t{weights_.size()},
        uint64_t{weights_.size()} - 7, uint64_t{100'000'000}, uint64_t{1} << 32, uint64_t{1} << 63,
        UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 8}) {
    EXPECT_FALSE(OpensWithWeights(WithLength(weights_, length))) << length;
  }
}

TEST_F(HostileFiles, FlippedBitsOfTheHeaderAreSurvived) {
  std::mt19937 rng(1);
  int n_opened = 0;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = weights_;
    for (uint32_t flips = 1 + rng() % 3; flips > 0; --flips) {
      bytes[8 + rng() % header_bytes_] ^= static_cast<char>(1 << rng() % 8);
    }
    n_opened += OpensWithWeights(bytes) ? 1 : 0;
  }
  EXPECT_LT(n_opened, 60);  // nearly every bit of a header matters
}

TEST_F(HostileFiles, ChangedNumbersInTheHeaderAreRefused) {
  const char* numbers[] = {
      "0",          "1",    "-1", "9223372036854775807",    "18446744073709551615", "1e18",
      "4294967296", "null", "[]", "99999999999999999999999"};
  const std::string header = weights_.substr(8, header_bytes_);
  for (size_t at = 0; at < header.size(); ++at) {
    const bool starts =
        std::isdigit(header[at]) && (header[at - 1] == '[' || header[at - 1] == ',');
    if (!starts) continue;
    const size_t end = header.find_first_not_of("0123456789", at);
    for (const char* number : numbers) {
      if (header.substr(at, end - at) == number) continue;
      const std::string changed = header.substr(0, at) + number + header.substr(end);
      EXPECT_FALSE(OpensWithWeights(WithLength(
          std::string(8, '\0') + changed + weights_.substr(8 + header_bytes_), changed.size())))
          << number << " at " << at;
    }
  }
}

TEST_F(HostileFiles, DataBitsDoNotMatterToTheLoader) {
  std::mt19937 rng(2);
  for (int i = 0; i < 50; ++i) {
    std::string bytes = weights_;
    const size_t at = 8 + header_bytes_ + rng() % (bytes.size() - 8 - header_bytes_);
    bytes[at] ^= static_cast<char>(1 << rng() % 8);
    EXPECT_TRUE(OpensWithWeights(bytes));
  }
}

TEST_F(HostileFiles, MutatedConfigsAreSurvived) {
  std::mt19937 rng(3);
  for (int i = 0; i < 600; ++i) {
    std::string text = config_;
    for (uint32_t edits = 1 + rng() % 3; edits > 0; --edits) {
      const size_t at = rng() % text.size();
      switch (rng() % 4) {
        case 0:
          text[at] ^= static_cast<char>(1 << rng() % 8);
          break;
        case 1:
          text.erase(at, 1 + rng() % 8);
          break;
        case 2:
          text.insert(at, text.substr(rng() % text.size(), rng() % 16));
          break;
        default:
          text.insert(at, std::to_string(rng()));
      }
      if (text.empty()) text.push_back(' ');
    }
    WriteFileOrDie(model_.File("config.json"), text);
    OpenAndRead(model_.path());
  }
}

TEST_F(HostileFiles, TruncatedConfigsAreRefused) {
  const size_t last = config_.find_last_of('}');
  for (size_t size = 0; size < last; ++size) {
    WriteFileOrDie(model_.File("config.json"), config_.substr(0, size));
    EXPECT_FALSE(OpenAndRead(model_.path())) << size;
  }
}

// A whole model's file, up to its data.
TEST(HostileGguf, MutationsOfAModelsHeaderAreSurvived) {
  const TempDirectory directory;
  const std::string whole = TinyGguf().Build();
  const size_t header_bytes = whole.find(std::string(64, '\0'));
  std::mt19937 rng(4);
  int n_opened = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = whole;
    for (uint32_t edits = 1 + rng() % 2; edits > 0; --edits) {
      const size_t at = rng() % header_bytes;
      if (rng() % 2 == 0) {
        bytes[at] ^= static_cast<char>(1 << rng() % 8);
      } else {
        bytes[at] = static_cast<char>(rng() % 32);
      }
    }
    WriteFileOrDie(directory.File("m.gguf"), bytes);
    n_opened += OpenAndRead(directory.path()) ? 1 : 0;
  }
  EXPECT_GT(n_opened, 0);
  EXPECT_LT(n_opened, 500);
}

TEST(HostileGguf, TruncatedModelsAreRefused) {
  const TempDirectory directory;
  const std::string whole = TinyGguf().Build();
  for (size_t size = 0; size < whole.size(); size += 101) {
    WriteFileOrDie(directory.File("m.gguf"), whole.substr(0, size));
    EXPECT_FALSE(OpenAndRead(directory.path())) << size;
  }
}

}  // namespace
}  // namespace lowkey

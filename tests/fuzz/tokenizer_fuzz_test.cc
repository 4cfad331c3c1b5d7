// The fuzz target over mutations of good models, always the same ones.

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lowkey {
namespace {

using Random = std::mt19937;

void RunTarget(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

ModelProto SeedModel(SegmentationType segmentation, bool byte_fallback) {
  const std::vector<std::string> pieces = {"▁the", "▁",  "th", "e",  "t",    "h",     "a", "aa",
                                           "aaaa", "▁▁", "é",  "日", "日本", "<sep>", "fi"};
  ModelProto model =
      byte_fallback ? MakeByteFallbackModel(segmentation, pieces) : MakeModel(segmentation, pieces);
  model.pieces[model.pieces.size() - 2].type = PieceType::kUserDefined;
  model.charsmap = MakeCharsmap({{"ﬁ", "fi"}, {"\n", " "}, {"\u00AD", ""}, {"e\u0301", "é"}});
  model.unk_id = 0;
  model.bos_id = 1;
  return model;
}

class TokenizerFuzzTest : public testing::TestWithParam<std::tuple<SegmentationType, bool>> {
 protected:
  ModelProto Seed() const { return std::apply(SeedModel, GetParam()); }
};

TEST_P(TokenizerFuzzTest, AcceptsItsSeed) {
  const std::string bytes = SerializeModel(Seed());
  EXPECT_TRUE(SentencePieceTokenizer::Create(bytes).ok());
  RunTarget(bytes);
}

TEST_P(TokenizerFuzzTest, SurvivesTruncation) {
  const std::string bytes = SerializeModel(Seed());
  for (size_t n = 0; n < bytes.size(); n += n < 2000 ? 1 : 97) RunTarget(bytes.substr(0, n));
}

TEST_P(TokenizerFuzzTest, SurvivesFlippedBitsAndSplicedBytes) {
  const std::string seed = SerializeModel(Seed());
  Random random(1);
  for (int round = 0; round < 600; ++round) {
    std::string bytes = seed;
    for (int n = 1 + static_cast<int>(random() % 4); n > 0; --n) {
      const size_t at = random() % bytes.size();
      const size_t length = std::min<size_t>(random() % 16, bytes.size() - at);
      if (random() % 4 == 0) {
        bytes.erase(at, length);
      } else if (random() % 4 == 0) {
        bytes.insert(at, seed.substr(random() % seed.size(), length));
      } else {
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      }
    }
    RunTarget(bytes);
  }
}

void EditPiece(Piece& piece, Random& random) {
  static const std::vector<std::string> kTexts = {"",
                                                  "a",
                                                  "<s>",
                                                  "▁",
                                                  "\xE2\x96",
                                                  "<0x41>",
                                                  "<0xGG>",
                                                  "th",
                                                  "日本",
                                                  std::string(513, 'x'),
                                                  std::string(200, 'a'),
                                                  std::string("\0", 1)};
  static const std::vector<float> kScores = {0,     -1,      FLT_MAX,   -FLT_MAX, FLT_MIN,
                                             1e30F, -1e-30F, HUGE_VALF, NAN};
  switch (random() % 3) {
    case 0:
      piece.text = kTexts[random() % kTexts.size()];
      break;
    case 1:
      piece.score = kScores[random() % kScores.size()];
      break;
    default:
      piece.type = static_cast<PieceType>(random() % 8);
  }
}

void EditModel(ModelProto& model, Random& random) {
  switch (random() % 10) {
    case 0:
      model.byte_fallback = !model.byte_fallback;
      break;
    case 1:
      model.segmentation = static_cast<SegmentationType>(random() % 6);
      break;
    case 2:
      model.unk_id = static_cast<int32_t>(random());
      break;
    case 3:
      model.remove_extra_whitespaces = !model.remove_extra_whitespaces;
      break;
    case 4:
      model.add_dummy_prefix = !model.add_dummy_prefix;
      break;
    default:
      EditPiece(model.pieces[random() % model.pieces.size()], random);
  }
}

TEST_P(TokenizerFuzzTest, SurvivesEditedFields) {
  Random random(2);
  int n_accepted = 0;
  for (int round = 0; round < 600; ++round) {
    ModelProto model = Seed();
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) EditModel(model, random);
    const std::string bytes = SerializeModel(model);
    n_accepted += SentencePieceTokenizer::Create(bytes).ok();
    RunTarget(bytes);
  }
  // Otherwise the encoder would hardly be tried.
  EXPECT_GT(n_accepted, 80);
}

// Overwrites a unit that some text can reach, or any, with another, or with one bit changed.
TEST_P(TokenizerFuzzTest, SurvivesEditedTries) {
  const ModelProto seed = Seed();
  Random random(3);
  int n_accepted = 0;
  for (int round = 0; round < 600; ++round) {
    ModelProto model = seed;
    const size_t n_units = (model.charsmap.size() - 4) / 4;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      uint32_t unit = 0;
      size_t at = random() % n_units;
      for (int tries = 0; tries < 500 && unit == 0; ++tries) {
        at = random() % n_units;
        std::memcpy(&unit, seed.charsmap.data() + 4 + 4 * at, 4);
      }
      unit = random() % 8 == 0 ? static_cast<uint32_t>(random()) : unit ^ 1U << random() % 32;
      std::memcpy(model.charsmap.data() + 4 + 4 * at, &unit, 4);
    }
    const std::string bytes = SerializeModel(model);
    n_accepted += SentencePieceTokenizer::Create(bytes).ok();
    RunTarget(bytes);
  }
  EXPECT_GT(n_accepted, 80);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TokenizerFuzzTest,
                         testing::Combine(testing::Values(SegmentationType::kUnigram,
                                                          SegmentationType::kBpe),
                                          testing::Bool()));

TEST(TokenizerFuzzBytesTest, SurvivesMutationsOfTrainedModels) {
  for (const char* name : {"bpe_identity.model", "unigram_nfkc.model"}) {
    const std::string seed = ReadTestData(name);
    Random random(4);
    for (int round = 0; round < 1000; ++round) {
      std::string bytes = seed;
      for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      RunTarget(bytes);
    }
  }
}

TEST(TokenizerFuzzBytesTest, SurvivesArbitraryBytes) {
  Random random(5);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    RunTarget(bytes);
  }
}

}  // namespace
}  // namespace lowkey

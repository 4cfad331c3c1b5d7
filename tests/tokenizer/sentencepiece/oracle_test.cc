// SentencePiece's own library, in a process of its own (oracle.cc), against our tokenizer: models
// that the library trains here and the demo model's, on sentences and on odd Unicode.

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "absl/strings/str_split.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_directory.h"
#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

namespace lowkey {
namespace {

struct OracleModel {
  const char* type;           // null: the demo model
  const char* normalization;  // a rule of SentencePiece's
  friend void PrintTo(const OracleModel& m, std::ostream* out) {
    *out << (m.type == nullptr ? "tales" : absl::StrCat(m.type, "_", m.normalization));
  }
};

struct Result {
  std::vector<int32_t> ids;
  std::string decoded;
};

// Code points that normalizers, pre-tokenizers and UTF-8 decoders stumble over.
constexpr char32_t kOddPoints[] = {
    0x01,   0x09,   0x0A,    0x0D,    0x20,    0x7F,    0x85,    0xA0,    0xAD,    0xBD,   0xDF,
    0xE9,   0x130,  0x131,   0x17F,   0x1C4,   0x301,   0x308,   0x327,   0x345,   0x3C2,  0x5D0,
    0x61C,  0x644,  0x661,   0x915,   0x93F,   0x94D,   0xE33,   0x1100,  0x1161,  0x11A8, 0x1E9B,
    0x2000, 0x200B, 0x200D,  0x200E,  0x2028,  0x2122,  0x2581,  0x3000,  0x3042,  0x3099, 0x4E2D,
    0xAC01, 0xE000, 0xF900,  0xFB01,  0xFDFA,  0xFE0F,  0xFEFF,  0xFF21,  0xFF76,  0xFF9E, 0xFFFC,
    0xFFFD, 0xFFFF, 0x1F1E6, 0x1F468, 0x1F3FD, 0x1D400, 0x2F800, 0xE0061, 0x10FFFF};

void AppendUtf8(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int n_more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr int kLeads[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLeads[n_more] | c >> (6 * n_more));
  for (int i = n_more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (c >> (6 * i) & 0x3F));
}

// Texts of odd code points alone and in the middle of words, with runs of spaces.
std::vector<std::string> OddTexts() {
  std::vector<std::string> texts = {"", " ", "   ", "\n", " a", "a ", "  two  spaces  "};
  std::mt19937 random(7);
  for (const char32_t point : kOddPoints) {
    std::string text = "so";
    AppendUtf8(point, text);
    texts.push_back(text + "on " + text);
  }
  for (int i = 0; i < 400; ++i) {
    std::string text;
    for (uint32_t n = random() % 24 + 1; n > 0; --n) {
      if (random() % 3 == 0) {
        AppendUtf8(kOddPoints[random() % std::size(kOddPoints)], text);
      } else {
        text += " the queen's 2nd son, "[random() % 22];
      }
    }
    texts.push_back(std::move(text));
  }
  return texts;
}

class OracleTest : public testing::TestWithParam<OracleModel> {
 protected:
  OracleTest() {
    if (GetParam().type == nullptr) {
      model_ = SourcePath("models/tales/tokenizer.model");
      return;
    }
    model_ = files_.File("trained.model");
    Run(absl::StrCat("train ", SourcePath("tests/tokenizer/sentencepiece/data/sentences.txt"), " ",
                     files_.File("trained"), " ", GetParam().type, " ", GetParam().normalization));
  }

  void Run(const std::string& arguments) {
    const std::string command = absl::StrCat(LOWKEY_SENTENCEPIECE_ORACLE, " ", arguments);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  std::vector<Result> Expected(const std::vector<std::string>& texts) {
    std::string input;
    for (const std::string& text : texts) absl::StrAppend(&input, text.size(), "\n", text);
    WriteFileOrDie(files_.File("texts"), input);
    Run(absl::StrCat("encode ", model_, " ", files_.File("texts"), " ", files_.File("results")));
    std::istringstream results(ReadFileOrDie(files_.File("results")));
    std::vector<Result> expected;
    for (size_t n; results >> n;) {
      Result result;
      result.ids.resize(n);
      for (int32_t& id : result.ids) results >> id;
      results >> n;
      results.get();
      result.decoded.resize(n);
      results.read(result.decoded.data(), static_cast<std::streamsize>(n));
      expected.push_back(std::move(result));
    }
    return expected;
  }

  void ExpectEqualOn(const std::vector<std::string>& texts) {
    const auto tokenizer = SentencePieceTokenizer::Create(ReadFileOrDie(model_));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::vector<Result> expected = Expected(texts);
    ASSERT_EQ(expected.size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto ids = (*tokenizer)->Encode(texts[i], {.add_bos = false, .add_eos = false});
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_EQ(*ids, expected[i].ids) << testing::PrintToString(texts[i]);
      const auto decoded = (*tokenizer)->Decode(expected[i].ids);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_EQ(*decoded, expected[i].decoded) << testing::PrintToString(texts[i]);
    }
  }

 private:
  TempDirectory files_;
  std::string model_;
};

TEST_P(OracleTest, EverySentenceIsEncodedAndDecodedAsByTheLibrary) {
  const std::string sentences = ReadTestData("sentences.txt");
  ExpectEqualOn(absl::StrSplit(sentences, '\n', absl::SkipEmpty()));
}

TEST_P(OracleTest, OddUnicodeIsEncodedAndDecodedAsByTheLibrary) { ExpectEqualOn(OddTexts()); }

INSTANTIATE_TEST_SUITE_P(
    Models, OracleTest,
    testing::Values(OracleModel{nullptr, nullptr}, OracleModel{"bpe", "identity"},
                    OracleModel{"bpe", "nmt_nfkc"}, OracleModel{"unigram", "identity"},
                    OracleModel{"unigram", "nmt_nfkc_cf"}),
    [](const auto& param_info) { return testing::PrintToString(param_info.param); });

}  // namespace
}  // namespace lowkey

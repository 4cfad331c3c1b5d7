#include "tokenizer/load/gguf_vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/tokenizer/bpe/golden.h"
#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using Ids = std::vector<int32_t>;

constexpr int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

GgufVocabulary MakeMerged() {
  return {.model = "gpt2",
          .pre = "gpt-2",
          .tokens = {"<s>", "a", "b", "ab", "Ġ", "<u>", "1", "2", "12"},
          .scores = {},
          .token_types = {kControl, kNormal, kNormal, kNormal, kNormal, kUserDefined, kNormal,
                          kNormal, kNormal},
          .merges = {"a b", "1 2"},
          .bos_id = 0,
          .eos_id = 0};
}

GgufVocabulary MakeScored() {
  GgufVocabulary vocabulary = {.model = "llama",
                               .tokens = {"<unk>", "<s>", "</s>"},
                               .scores = {0, 0, 0},
                               .token_types = {kUnknown, kControl, kControl},
                               .bos_id = 1,
                               .eos_id = 2,
                               .unk_id = 0};
  const auto add = [&](std::string token, float score, int64_t type) {
    vocabulary.tokens.push_back(std::move(token));
    vocabulary.scores.push_back(score);
    vocabulary.token_types.push_back(type);
  };
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kHex[] = "0123456789ABCDEF";
    add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", 0, kByte);
  }
  add("▁", -3, kNormal);
  add("a", -2, kNormal);
  add("▁a", -1, kNormal);
  return vocabulary;
}

std::unique_ptr<Tokenizer> Make(GgufVocabulary vocabulary) {
  auto tokenizer = MakeGgufTokenizer(std::move(vocabulary), "m.gguf");
  EXPECT_THAT(tokenizer, IsOk());
  return *std::move(tokenizer);
}

TEST(MakeGgufTokenizerTest, MergesWithSpecialsApart) {
  const auto tokenizer = Make(MakeMerged());
  EXPECT_THAT(*tokenizer->Encode("ab <u>ab<s>"), ElementsAre(3, 4, 5, 3));
  EXPECT_THAT(*tokenizer->Encode("<s>ab", {.parse_special = true}), ElementsAre(0, 3));
  EXPECT_EQ(*tokenizer->Decode(Ids{0, 3, 4, 5}), "ab <u>");
  EXPECT_TRUE(tokenizer->IsControl(0));
  EXPECT_FALSE(tokenizer->IsControl(5));
  EXPECT_EQ(tokenizer->bos_id(), 0);
  EXPECT_FALSE(tokenizer->adds_bos());
}

TEST(MakeGgufTokenizerTest, ThePreTokenizersNameDecidesTheWords) {
  GgufVocabulary vocabulary = MakeMerged();
  EXPECT_THAT(*Make(vocabulary)->Encode("12"), ElementsAre(8));
  vocabulary.pre = "smollm";
  EXPECT_THAT(*Make(vocabulary)->Encode("12"), ElementsAre(6, 7));
  vocabulary.pre = "llama-bpe";
  EXPECT_TRUE(Make(vocabulary)->adds_bos());
  vocabulary.add_bos = false;
  EXPECT_FALSE(Make(vocabulary)->adds_bos());
  vocabulary.pre = "zen";
  EXPECT_THAT(MakeGgufTokenizer(vocabulary, "m.gguf"),
              FailsWith(kUnimplemented, "m.gguf: tokenizer.ggml.pre: \"zen\" is not supported"));
}

TEST(MakeGgufTokenizerTest, ScoresAreSentencePieces) {
  const auto tokenizer = Make(MakeScored());
  EXPECT_THAT(*tokenizer->Encode("aé"), ElementsAre(1, 261, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(*tokenizer->Decode(Ids{1, 261, 3 + 0xC3, 3 + 0xA9}), "aé");
  EXPECT_TRUE(tokenizer->adds_bos());
  GgufVocabulary without_prefix = MakeScored();
  without_prefix.add_space_prefix = false;
  EXPECT_THAT(*Make(without_prefix)->Encode("a", {.add_bos = false}), ElementsAre(260));
}

// phi-3 has two tokens of the type "unknown".
TEST(MakeGgufTokenizerTest, OfTwoUnknownTokensTheDeclaredOneOrTheFirstIsTheUnknownPiece) {
  GgufVocabulary vocabulary = MakeScored();
  vocabulary.tokens.push_back("<|pad|>");
  vocabulary.scores.push_back(0);
  vocabulary.token_types.push_back(kUnknown);
  for (const std::optional<int32_t> unk_id : {std::optional<int32_t>(), std::optional(0)}) {
    vocabulary.unk_id = unk_id;
    const auto tokenizer = Make(vocabulary);
    EXPECT_THAT(*tokenizer->Encode("a"), ElementsAre(1, 261));
    EXPECT_EQ(*tokenizer->Decode(Ids{0, 261, 262}), " \xE2\x81\x87  a");
    EXPECT_TRUE(tokenizer->IsControl(262));
    EXPECT_THAT(*tokenizer->Encode("<|pad|>", {.parse_special = true}), ElementsAre(1, 262));
  }
  vocabulary.unk_id = 262;
  EXPECT_TRUE(Make(vocabulary)->IsControl(0));
  EXPECT_FALSE(Make(vocabulary)->IsControl(262));
  vocabulary.unk_id = 261;
  EXPECT_THAT(MakeGgufTokenizer(vocabulary, "m.gguf"), IsInvalid("unk_id 261 is piece"));
}

TEST(MakeGgufTokenizerTest, TheUnknownPieceMayBeAControlToken) {
  GgufVocabulary vocabulary = MakeScored();
  vocabulary.token_types[0] = kControl;
  EXPECT_FALSE(Make(vocabulary)->IsControl(0));
  vocabulary.unk_id = std::nullopt;
  EXPECT_THAT(MakeGgufTokenizer(vocabulary, "m.gguf"), IsInvalid("none of type unknown"));
}

TEST(MakeGgufTokenizerTest, EveryTokenThatEndsAText) {
  GgufVocabulary vocabulary = MakeMerged();
  vocabulary.eos_id = 2;
  vocabulary.end_ids = {3, 2};
  EXPECT_THAT(Make(vocabulary)->eos_ids(), ElementsAre(2, 3));
}

TEST(MakeGgufTokenizerTest, RejectsListsThatDoNotFit) {
  const auto make = [](GgufVocabulary vocabulary) {
    return MakeGgufTokenizer(std::move(vocabulary), "m.gguf");
  };
  GgufVocabulary vocabulary = MakeScored();
  vocabulary.scores.pop_back();
  EXPECT_THAT(make(vocabulary),
              IsInvalid("m.gguf: tokenizer.ggml.scores: 261 items, expected 262"));
  vocabulary.scores.push_back(NAN);
  EXPECT_THAT(make(vocabulary), IsInvalid("tokenizer.ggml.tokens: "));
  vocabulary = MakeMerged();
  vocabulary.token_types.pop_back();
  EXPECT_THAT(make(vocabulary), IsInvalid("token_type: 8 items, expected 9 as in tokens"));
  vocabulary.token_types.push_back(7);
  EXPECT_THAT(make(vocabulary), IsInvalid("token_type: [8]: 7, expected 1 to 6"));
  vocabulary = MakeMerged();
  vocabulary.merges = {"ab"};
  EXPECT_THAT(make(vocabulary), IsInvalid("merges: [0]: \"ab\", expected two tokens"));
  vocabulary.merges = {""};
  EXPECT_THAT(make(vocabulary), IsInvalid("merges: [0]: \"\""));
  vocabulary = MakeMerged();
  vocabulary.eos_id = 9;
  EXPECT_THAT(make(vocabulary), IsInvalid("tokenizer.ggml: eos_token_id: token id 9"));
  vocabulary.tokens.clear();
  EXPECT_THAT(make(vocabulary), IsInvalid("tokens: 0 items"));
  vocabulary = MakeMerged();
  vocabulary.model = "bert";
  EXPECT_THAT(make(vocabulary),
              FailsWith(kUnimplemented, "tokenizer.ggml.model: \"bert\" is not supported"));
}

void ExpectSameIds(const Tokenizer& tokenizer, const nlohmann::json& expected) {
  ASSERT_GT(expected["encoded"].size(), 100u);
  for (const auto& entry : expected["encoded"]) {
    const std::string text = entry["text"];
    const auto ids = tokenizer.Encode(text, {.add_bos = false});
    ASSERT_THAT(ids, IsOk());
    EXPECT_EQ(*ids, entry["ids"].get<Ids>()) << testing::PrintToString(text);
    EXPECT_EQ(*tokenizer.Decode(*ids), entry["decoded"].get<std::string>());
  }
}

// A trained tokenizer.model with byte fallback, as a GGUF file would hold it.
TEST(MakeGgufTokenizerTest, ScoresGiveTheIdsOfSentencePiece) {
  const auto model = ParseModelProto(ReadTestData("bpe_identity.model"));
  ASSERT_THAT(model, IsOk());
  GgufVocabulary vocabulary = {.model = "llama", .bos_id = 1, .eos_id = 2, .unk_id = 0};
  for (const Piece& piece : model->pieces) {
    vocabulary.tokens.push_back(piece.text);
    vocabulary.scores.push_back(piece.score);
    vocabulary.token_types.push_back(static_cast<int64_t>(piece.type));
  }
  ExpectSameIds(*Make(std::move(vocabulary)),
                nlohmann::json::parse(ReadTestData("expected.json"))[0]);
}

// The same tokenizer, once as tokenizer.json and once as a GGUF file would hold it.
struct Style {
  const char* golden;
  const char* pre;
};

class SameAsJsonTest : public testing::TestWithParam<Style> {};

TEST_P(SameAsJsonTest, GivesTheIdsOfHuggingFace) {
  const std::string name = GetParam().golden;
  const auto spec = ParseTokenizerJson(ReadBpeTestData(name + ".json"));
  ASSERT_THAT(spec, IsOk());
  GgufVocabulary vocabulary = {
      .model = "gpt2",
      .pre = GetParam().pre,
      .tokens = spec->vocabulary.pieces,
      .scores = {},
      .token_types = std::vector<int64_t>(spec->vocabulary.pieces.size(), kNormal)};
  for (const MergeRule& merge : spec->vocabulary.merges) {
    vocabulary.merges.push_back(merge.left + " " + merge.right);
  }
  for (const AddedToken& token : spec->added_tokens) {
    ASSERT_EQ(static_cast<size_t>(token.id), vocabulary.tokens.size());
    vocabulary.tokens.push_back(token.content);
    vocabulary.token_types.push_back(token.is_special ? kControl : kUserDefined);
  }
  ExpectSameIds(*Make(std::move(vocabulary)),
                nlohmann::json::parse(ReadBpeTestData(name + ".expected.json")));
}

INSTANTIATE_TEST_SUITE_P(Styles, SameAsJsonTest,
                         testing::Values(Style{"gpt2", "gpt-2"}, Style{"smollm", "smollm"},
                                         Style{"llama3", "llama-bpe"}),
                         [](const auto& param_info) {
                           return std::string(param_info.param.golden);
                         });

}  // namespace
}  // namespace lowkey

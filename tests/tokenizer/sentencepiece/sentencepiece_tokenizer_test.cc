#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ids = std::vector<int32_t>;

constexpr SegmentationType kBpe = SegmentationType::kBpe;
constexpr SegmentationType kUnigram = SegmentationType::kUnigram;

std::unique_ptr<Tokenizer> Make(const ModelProto& model, const TokenizerSettings& settings = {}) {
  auto tokenizer = SentencePieceTokenizer::Create(SerializeModel(model), settings);
  EXPECT_THAT(tokenizer, IsOk());
  return *std::move(tokenizer);
}

Ids EncodeText(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_THAT(ids, IsOk());
  return ids.value_or(Ids{});
}

class SegmentationTest : public testing::TestWithParam<SegmentationType> {};

TEST_P(SegmentationTest, FallsBackToBytes) {
  const auto tokenizer = Make(MakeByteFallbackModel(GetParam(), {"▁", "a"}));
  EXPECT_THAT(EncodeText(*tokenizer, "aé"), ElementsAre(1, 259, 260, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(EncodeText(*tokenizer, std::string_view("\0", 1)), ElementsAre(1, 259, 3));
}

TEST_P(SegmentationTest, TextsBetweenControlPiecesAreBoundedTogether) {
  ModelProto model = MakeByteFallbackModel(GetParam(), {"▁", "a"});
  model.charsmap = MakeCharsmap({{"x", std::string(250, 'a')}});
  const auto tokenizer = Make(model);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "x<s>";
  EXPECT_THAT(tokenizer->Encode(text, {.parse_special = true}),
              IsInvalid("over 16777216 bytes once normalized"));
  EXPECT_THAT(tokenizer->Encode(text.substr(0, 4000), {.parse_special = true}), IsOk());
}

TEST_P(SegmentationTest, SaysHowLongTheTextOfAnIdCanBe) {
  EXPECT_EQ(Make(MakeByteFallbackModel(GetParam(), {"▁", "▁abcdefg"}))->max_bytes_per_id(), 10);
  EXPECT_EQ(Make(MakeModel(GetParam(), {"▁", "a"}))->max_bytes_per_id(), std::nullopt)
      << "a run of unknown characters is one id";
  ModelProto model = MakeByteFallbackModel(GetParam(), {"▁", "a"});
  model.remove_extra_whitespaces = true;
  EXPECT_EQ(Make(model)->max_bytes_per_id(), std::nullopt);
  model.remove_extra_whitespaces = false;
  model.charsmap = MakeCharsmap({{"xx", ""}});
  EXPECT_EQ(Make(model)->max_bytes_per_id(), std::nullopt);
}

TEST_P(SegmentationTest, CanBeInterrupted) {
  const auto tokenizer = Make(MakeByteFallbackModel(GetParam(), {"▁", "a", "aa"}));
  for (const int n_before : {0, 1, 4, 8, 10}) {
    int n_asked = 0;
    Interrupt interrupt(
        [&] { return n_asked++ < n_before ? absl::OkStatus() : absl::CancelledError("enough"); });
    EXPECT_THAT(tokenizer->Encode(std::string(200'000, 'a'), {.interrupt = &interrupt}),
                FailsWith(absl::StatusCode::kCancelled, "enough"));
    EXPECT_EQ(n_asked, n_before + 1);
  }
}

TEST_P(SegmentationTest, WithoutByteFallbackARunOfUnknownsIsOneToken) {
  const auto tokenizer = Make(MakeModel(GetParam(), {"▁", "a"}));
  EXPECT_THAT(EncodeText(*tokenizer, "日本a語"), ElementsAre(1, 3, 0, 4, 0));
  EXPECT_EQ(*tokenizer->Decode(Ids{1, 3, 0, 4, 0}), " \u2047 a \u2047 ");
}

TEST_P(SegmentationTest, RoundTripsAnyTextWithByteFallback) {
  const auto tokenizer = Make(MakeByteFallbackModel(GetParam(), {"▁", "a", "▁a", "aa", "é", "<"}));
  for (const std::string& text :
       {std::string("a"), std::string(" a"), std::string("   "), std::string("\n\t\r\n"),
        std::string("<s>a</s><unk><0x41>"), std::string("a\0b", 3),
        std::string("e\u0301\u200D\uFEFF"), std::string("\U0010FFFF\uFFFD"), std::string(250, 'a'),
        std::string("")}) {
    EXPECT_EQ(*tokenizer->Decode(EncodeText(*tokenizer, text)), text);
  }
}

TEST_P(SegmentationTest, TextThatSpellsControlOrBytePiecesIsText) {
  const auto tokenizer = Make(MakeByteFallbackModel(GetParam(), {"▁", "a"}));
  for (const int32_t id : EncodeText(*tokenizer, "<s>a</s>", {.add_bos = false})) {
    EXPECT_FALSE(tokenizer->IsControl(id));
  }
  EXPECT_EQ(EncodeText(*tokenizer, "<0x41>", {.add_bos = false}).size(), 1u + 6u);  // ▁ and bytes
}

TEST_P(SegmentationTest, ParsesSpecialsOnRequestOnly) {
  const auto tokenizer = Make(MakeByteFallbackModel(GetParam(), {"▁a", "▁", "a"}));
  const EncodeOptions options = {.add_bos = false, .parse_special = true};
  EXPECT_THAT(EncodeText(*tokenizer, "<s>a</s></s>a", options), ElementsAre(1, 259, 2, 2, 259));
  EXPECT_THAT(EncodeText(*tokenizer, "a<s", options), ElementsAre(259, 3 + '<', 3 + 's'));
  EXPECT_THAT(EncodeText(*tokenizer, "", options), IsEmpty());
}

TEST_P(SegmentationTest, RecognizesNoSpecialThatOverlapsALiteralRange) {
  const auto tokenizer = Make(MakeByteFallbackModel(GetParam(), {"▁a", "▁", "a"}));
  const auto encode = [&](std::vector<ByteRange> literal) {
    return EncodeText(*tokenizer, "<s><s>a</s>",
                      {.add_bos = false, .parse_special = true, .literal_ranges = literal});
  };
  EXPECT_THAT(encode({{6, 7}}), ElementsAre(1, 1, 259, 2));
  const Ids first = encode({{0, 1}});
  EXPECT_EQ(first, encode({{0, 3}}));
  EXPECT_THAT(std::vector(first.end() - 3, first.end()), ElementsAre(1, 259, 2));
  EXPECT_EQ(encode({{0, 1}, {5, 6}, {10, 11}}),
            EncodeText(*tokenizer, "<s><s>a</s>", {.add_bos = false}));
}

INSTANTIATE_TEST_SUITE_P(Types, SegmentationTest, testing::Values(kBpe, kUnigram),
                         [](const auto& param_info) {
                           return param_info.param == kBpe ? "Bpe" : "Unigram";
                         });

TEST(TokenizerTest, RejectsInvalidUtf8WithItsOffset) {
  const auto tokenizer = Make(MakeModel(kBpe, {"▁", "a"}));
  EXPECT_THAT(tokenizer->Encode("aé\xFFz"), IsInvalid("text: not UTF-8 at byte 3"));
  EXPECT_THAT(tokenizer->Encode("a\xE2\x96"), IsInvalid("at byte 1"));
  EXPECT_THAT(tokenizer->Encode("\xED\xA0\x80"), IsInvalid("at byte 0"));
}

TEST(TokenizerTest, LimitsTheTextsSize) {
  const auto tokenizer = Make(MakeModel(kBpe, {"▁"}));
  EXPECT_THAT(tokenizer->Encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a')),
              IsInvalid("text: 4194305 bytes, expected at most 4194304"));
}

TEST(TokenizerTest, RejectsLiteralRangesOutOfOrderOrOutsideTheText) {
  const auto tokenizer = Make(MakeModel(kBpe, {"▁", "a"}));
  const auto encode = [&](std::vector<ByteRange> literal) {
    return tokenizer->Encode("aaaa", {.literal_ranges = literal});
  };
  EXPECT_THAT(encode({{0, 2}, {2, 4}}), IsOk());
  EXPECT_THAT(encode({{0, 5}}), IsInvalid("literal_ranges[0]: [0, 5), expected a range within"));
  EXPECT_THAT(encode({{2, 3}, {1, 4}}), IsInvalid("literal_ranges[1]: [1, 4)"));
  EXPECT_THAT(encode({{3, 2}}), IsInvalid("literal_ranges[0]: [3, 2)"));
}

TEST(TokenizerTest, AddsBosAndEosAsAsked) {
  const auto tokenizer = Make(MakeModel(kBpe, {"▁", "a"}));
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_FALSE(tokenizer->adds_eos());
  EXPECT_THAT(EncodeText(*tokenizer, "a"), ElementsAre(1, 3, 4));
  EXPECT_THAT(EncodeText(*tokenizer, "a", {.add_bos = false, .add_eos = true}),
              ElementsAre(3, 4, 2));
  EXPECT_THAT(EncodeText(*tokenizer, "", {.add_eos = true}), ElementsAre(1, 2));
}

TEST(TokenizerTest, SettingsSayWhetherToAddBosAndEos) {
  const auto tokenizer =
      Make(MakeModel(kBpe, {"▁", "a"}), {.add_bos_token = false, .add_eos_token = true});
  EXPECT_THAT(EncodeText(*tokenizer, "a"), ElementsAre(3, 4, 2));
  EXPECT_THAT(EncodeText(*tokenizer, "a", {.add_bos = true, .add_eos = false}),
              ElementsAre(1, 3, 4));
}

TEST(TokenizerTest, ModelWithoutBosCannotAddIt) {
  ModelProto model = MakeModel(kBpe, {"▁", "a"});
  model.pieces[1].text = "<cls>";
  const auto tokenizer = Make(model);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_THAT(EncodeText(*tokenizer, "a"), ElementsAre(3, 4));
  EXPECT_THAT(tokenizer->Encode("a", {.add_bos = true}), IsInvalid("no bos token"));
}

TEST(TokenizerTest, AnIdInTheConfigWinsOverANameAndThatOverTheModels) {
  const ModelProto model = MakeModel(kBpe, {"▁", "a"});
  EXPECT_EQ(Make(model)->bos_id(), 1);
  EXPECT_THAT(Make(model)->eos_ids(), ElementsAre(2));
  const TokenizerSettings named = {.bos_token = "</s>", .eos_token = "a"};
  EXPECT_EQ(Make(model, named)->bos_id(), 2);
  EXPECT_THAT(Make(model, named)->eos_ids(), ElementsAre(4));
  TokenizerSettings ids = named;
  ids.bos_id = 3;
  ids.eos_ids = {2, 4, 2};
  EXPECT_EQ(Make(model, ids)->bos_id(), 3);
  EXPECT_THAT(Make(model, ids)->eos_ids(), ElementsAre(2, 4));
}

TEST(TokenizerTest, RejectsSettingsThatTheModelLacks) {
  const std::string bytes = SerializeModel(MakeModel(kBpe, {"a"}));
  EXPECT_THAT(SentencePieceTokenizer::Create(bytes, {.bos_token = "<none>"}),
              IsInvalid("bos_token \"<none>\", expected a piece"));
  EXPECT_THAT(SentencePieceTokenizer::Create(bytes, {.eos_token = "<none>"}),
              IsInvalid("eos_token"));
  EXPECT_THAT(SentencePieceTokenizer::Create(bytes, {.bos_id = 4, .bos_id_file = "config.json"}),
              IsInvalid("config.json: bos_token_id: token id 4, expected 0 to 3"));
  EXPECT_THAT(
      SentencePieceTokenizer::Create(bytes, {.eos_ids = {2, 99}, .eos_ids_file = "config.json"}),
      IsInvalid("config.json: eos_token_id: token id 99"));
}

TEST(TokenizerTest, MapsPiecesAndIds) {
  const auto tokenizer = Make(MakeModel(kBpe, {"▁", "a"}));
  EXPECT_EQ(tokenizer->vocab_size(), 5);
  EXPECT_EQ(*tokenizer->IdToPiece(3), "▁");
  EXPECT_EQ(tokenizer->PieceToId("a"), 4);
  EXPECT_EQ(tokenizer->PieceToId("</s>"), 2);
  EXPECT_EQ(tokenizer->PieceToId("b"), std::nullopt);
  EXPECT_THAT(tokenizer->IdToPiece(5), IsInvalid("token id 5, expected 0 to 4"));
  EXPECT_THAT(tokenizer->IdToPiece(-1), IsInvalid("token id -1"));
  EXPECT_TRUE(tokenizer->IsControl(2));
  EXPECT_FALSE(tokenizer->IsControl(0));
  EXPECT_FALSE(tokenizer->IsControl(-7));
  EXPECT_FALSE(tokenizer->IsControl(5));
}

TEST(TokenizerTest, DecodeNamesTheIdOutsideTheVocabulary) {
  const auto tokenizer = Make(MakeModel(kBpe, {"▁", "a"}));
  EXPECT_THAT(tokenizer->Decode(Ids{4, 5}), IsInvalid("ids[1]: token id 5, expected 0 to 4"));
}

TEST(TokenizerTest, NormalizesByTheModelsCharsmap) {
  ModelProto model = MakeModel(kUnigram, {"▁", "f", "i", "▁fi"});
  model.charsmap = MakeCharsmap({{"ﬁ", "fi"}, {"\n", " "}});
  model.remove_extra_whitespaces = true;
  EXPECT_THAT(EncodeText(*Make(model), "\nﬁ \n"), ElementsAre(1, 6));
}

TEST(TokenizerTest, NamesTheFileAndPartOfABadModel) {
  ModelProto model = MakeModel(kBpe, {"a"});
  EXPECT_THAT(SentencePieceTokenizer::Create(""), IsInvalid("tokenizer.model: pieces: none"));
  EXPECT_THAT(SentencePieceTokenizer::Create("\x0A\x7F"),
              IsInvalid("tokenizer.model: malformed message"));
  model.charsmap = "zz";
  EXPECT_THAT(SentencePieceTokenizer::Create(SerializeModel(model)),
              IsInvalid("tokenizer.model: precompiled_charsmap: 2 bytes"));
}

TEST(TokenizerTest, EncodesTheSameInManyThreads) {
  const auto tokenizer = SentencePieceTokenizer::Create(ReadTestData("unigram_nfkc.model"));
  ASSERT_THAT(tokenizer, IsOk());
  const std::string text = "The little girl walked to the river; ﬁ ½ 日本語. ";
  const Ids expected = EncodeText(**tokenizer, text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) result = *(*tokenizer)->Encode(text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(TokenizerTest, EncodesAMebibyteOfOneLetter) {
  for (const char* name : {"bpe_identity.model", "unigram_nfkc.model"}) {
    const auto tokenizer = SentencePieceTokenizer::Create(ReadTestData(name));
    ASSERT_THAT(tokenizer, IsOk());
    const std::string text(1 << 20, 'a');
    EXPECT_EQ(*(*tokenizer)->Decode(EncodeText(**tokenizer, text)), text);
  }
}

}  // namespace
}  // namespace lowkey

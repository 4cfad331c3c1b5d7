#include "tokenizer/bpe/bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/tokenizer/bpe/golden.h"
#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/stream_decoder.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ids = std::vector<int32_t>;

// "a" to "c", "ab", and "<s>" and "</s>" after them.
BpeSpec MakeSpec() {
  BpeSpec spec;
  spec.vocabulary = {.pieces = {"a", "b", "c", "ab"}, .merges = {{"a", "b"}}};
  spec.added_tokens = {{.id = 4, .content = "<s>", .is_special = true},
                       {.id = 5, .content = "</s>", .is_special = true}};
  return spec;
}

std::unique_ptr<Tokenizer> Make(BpeSpec spec, TokenizerSettings settings = {}) {
  auto tokenizer = BpeTokenizer::Create(std::move(spec), std::move(settings));
  EXPECT_THAT(tokenizer, IsOk());
  return *std::move(tokenizer);
}

Ids Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_THAT(ids, IsOk());
  return ids.value_or(Ids{});
}

TEST(BpeTokenizerTest, KnowsItsPieces) {
  BpeSpec spec = MakeSpec();
  spec.added_tokens.push_back({.id = 8, .content = "<t>"});
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(tokenizer->vocab_size(), 9);
  EXPECT_EQ(*tokenizer->IdToPiece(3), "ab");
  EXPECT_EQ(*tokenizer->IdToPiece(4), "<s>");
  EXPECT_EQ(*tokenizer->IdToPiece(7), "");
  EXPECT_THAT(tokenizer->IdToPiece(9), IsInvalid("token id 9, expected 0 to 8"));
  EXPECT_EQ(tokenizer->PieceToId("<t>"), 8);
  EXPECT_EQ(tokenizer->PieceToId("c"), 2);
  EXPECT_EQ(tokenizer->PieceToId(""), std::nullopt);
  EXPECT_TRUE(tokenizer->IsControl(4));
  for (const int32_t id : {-1, 0, 7, 8, 9}) EXPECT_FALSE(tokenizer->IsControl(id));
}

// MakeSpec's with "<unk>" as piece 4.
BpeSpec MakeSpecWithUnknown() {
  BpeSpec spec = MakeSpec();
  spec.vocabulary.pieces.push_back("<unk>");
  spec.vocabulary.unk_piece = "<unk>";
  spec.added_tokens = {};
  return spec;
}

TEST(BpeTokenizerTest, SaysHowLongTheTextOfAnIdCanBe) {
  EXPECT_EQ(Make(MakeSpec())->max_bytes_per_id(), std::nullopt) << "characters are dropped";
  EXPECT_EQ(Make(MakeSpecWithUnknown())->max_bytes_per_id(), 5);
  BpeSpec spec = MakeSpecWithUnknown();
  spec.vocabulary.fuses_unk = true;
  EXPECT_EQ(Make(spec)->max_bytes_per_id(), std::nullopt);
  spec = MakeSpecWithUnknown();
  spec.added_tokens = {{.id = 5, .content = "<t>", .takes_right_space = true}};
  EXPECT_EQ(Make(spec)->max_bytes_per_id(), std::nullopt);
}

TEST(BpeTokenizerTest, NormalizersThatShortenTextCount) {
  BpeSpec spec = MakeSpecWithUnknown();
  spec.rewriter.emplace_back(Replace{*Pattern::FromString("aaaa"), "bb"});
  EXPECT_EQ(Make(spec)->max_bytes_per_id(), 10);
  spec.rewriter.emplace_back(UnicodeForm::kNfkc);
  EXPECT_EQ(Make(spec)->max_bytes_per_id(), 40);
  spec.rewriter.emplace_back(Replace{*Pattern::FromString("b"), ""});
  EXPECT_EQ(Make(spec)->max_bytes_per_id(), std::nullopt);
  spec = MakeSpecWithUnknown();
  spec.rewriter.emplace_back(Replace{*Pattern::FromRegex(" +"), " "});
  EXPECT_EQ(Make(spec)->max_bytes_per_id(), std::nullopt);
  spec = MakeSpecWithUnknown();
  spec.pre_tokenizer.emplace_back(Cut{*Pattern::FromString(" "), Cut::Behavior::kRemoved});
  EXPECT_EQ(Make(spec)->max_bytes_per_id(), std::nullopt);
}

TEST(BpeTokenizerTest, CanBeInterrupted) {
  BpeSpec spec = MakeSpec();
  for (const bool has_pattern : {false, true}) {
    if (has_pattern) spec.pre_tokenizer.emplace_back(Cut{*Pattern::FromRegex("ab|c")});
    const auto tokenizer = Make(spec);
    for (const int n_before : {0, 1, 2}) {
      int n_asked = 0;
      Interrupt interrupt(
          [&] { return n_asked++ < n_before ? absl::OkStatus() : absl::CancelledError("enough"); });
      std::string text;
      for (int i = 0; i < 100'000; ++i) text += "ab";
      EXPECT_THAT(tokenizer->Encode(text, {.interrupt = &interrupt}),
                  FailsWith(absl::StatusCode::kCancelled, "enough"));
      EXPECT_EQ(n_asked, n_before + 1);
    }
  }
}

TEST(BpeTokenizerTest, ThePostProcessorsTokensAreBosAndEos) {
  const auto plain = Make(MakeSpec(), {.bos_token = "<s>", .eos_token = "</s>"});
  EXPECT_THAT(Encode(*plain, "ab"), ElementsAre(3));
  EXPECT_THAT(Encode(*plain, "ab", {.add_bos = true, .add_eos = true}), ElementsAre(4, 3, 5));
  BpeSpec spec = MakeSpec();
  spec.prefix_id = 4;
  spec.suffix_id = 5;
  const auto both = Make(spec, {.bos_token = "a", .eos_ids = {2, 5}});
  EXPECT_EQ(both->bos_id(), 4);
  EXPECT_THAT(both->eos_ids(), ElementsAre(5, 2));
  EXPECT_THAT(Encode(*both, "ab"), ElementsAre(4, 3, 5));
  EXPECT_THAT(Encode(*both, "", {.add_eos = false}), ElementsAre(4));
  EXPECT_FALSE(Make(spec, {.add_bos_token = false})->adds_bos());
}

TEST(BpeTokenizerTest, TellsTheUsersWordsFromTheTemplates) {
  const auto tokenizer = Make(MakeSpec());
  const std::string text = "<s>ab</s>ab</s>";
  const std::vector<ByteRange> user = {{3, 11}};
  EXPECT_THAT(Encode(*tokenizer, text, {.parse_special = true}), ElementsAre(4, 3, 5, 3, 5));
  EXPECT_THAT(Encode(*tokenizer, text, {.parse_special = true, .literal_ranges = user}),
              ElementsAre(4, 3, 3, 5));
  EXPECT_THAT(Encode(*tokenizer, text), ElementsAre(3, 3));
  // Merges go over the border of what a user wrote.
  const std::vector<ByteRange> one = {{0, 1}};
  EXPECT_THAT(Encode(*tokenizer, "ab", {.parse_special = true, .literal_ranges = one}),
              ElementsAre(3));
}

TEST(BpeTokenizerTest, DecodesSpecialsAndGapsToNothing) {
  BpeSpec spec = MakeSpec();
  spec.added_tokens.push_back({.id = 7, .content = "<t>"});
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(*tokenizer->Decode(Ids{4, 3, 6, 5, 7, 2}), "ab<t>c");
  EXPECT_THAT(tokenizer->Decode(Ids{8}), IsInvalid("ids[0]: token id 8, expected 0 to 7"));
}

TEST(BpeTokenizerTest, JoinsSpelledBytesOverSpecials) {
  BpeSpec spec = MakeSpec();
  spec.vocabulary = {.pieces = {"Ã", "©", "ð", "Ł"}, .merges = {}};
  spec.decoder = {.unspells = true, .rules = {.broken_utf8 = DecodeRules::BrokenUtf8::kSequence}};
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(*tokenizer->Decode(Ids{0, 4, 1}), "é");
  EXPECT_EQ(*tokenizer->Decode(Ids{2, 3, 0, 1}), "\uFFFDé");
  EXPECT_EQ(*tokenizer->Decode(Ids{2, 3}), "\uFFFD");
  StreamDecoder stream(*tokenizer);
  EXPECT_EQ(*stream.Append(0), "");
  EXPECT_EQ(*stream.Append(4), "");
  EXPECT_EQ(*stream.Append(1), "é");
}

TEST(BpeTokenizerTest, KeepsWholeCharactersBesideBrokenBytes) {
  BpeSpec spec = MakeSpec();
  spec.vocabulary = {.pieces = {"<0xC3>", "<0xA9>", "<0x20>", "▁a"}, .merges = {}};
  spec.decoder = {.reads_bytes = true,
                  .replacements = {{"▁", " "}},
                  .rules = {.leading_space = DecodeRules::LeadingSpace::kOne}};
  const auto tokenizer = Make(std::move(spec));
  EXPECT_EQ(*tokenizer->Decode(Ids{0, 0, 1}), "\uFFFDé");
  EXPECT_EQ(*tokenizer->Decode(Ids{3, 3}), "a a");
  EXPECT_EQ(*tokenizer->Decode(Ids{2, 3}), " a");
  EXPECT_EQ(*tokenizer->Decode(Ids{3}, {.keep_leading_space = true}), " a");
}

TEST(BpeTokenizerTest, RejectsAddedTokensThatContradictTheVocabulary) {
  const auto create = [](AddedToken token) {
    BpeSpec spec = MakeSpec();
    spec.added_tokens = {std::move(token)};
    return BpeTokenizer::Create(std::move(spec), {});
  };
  EXPECT_THAT(create({.id = 1, .content = "a"}), IsInvalid("\"a\": id 1, expected 0 as in vocab"));
  EXPECT_THAT(create({.id = 1, .content = "x"}), IsInvalid("expected one that is not \"b\""));
  EXPECT_THAT(create({.id = 1 << 20, .content = "x"}), IsInvalid("expected 0 to 1048575"));
  EXPECT_THAT(create({.id = 0, .content = "a", .is_special = true}), IsOk());
  BpeSpec spec = MakeSpec();
  spec.added_tokens[1].id = 4;
  EXPECT_THAT(BpeTokenizer::Create(std::move(spec), {}), IsInvalid("expected one that is not"));
}

TEST(BpeTokenizerTest, RejectsSettingsThatTheModelLacks) {
  EXPECT_THAT(BpeTokenizer::Create(MakeSpec(), {.bos_token = "<none>"}),
              IsInvalid("bos_token \"<none>\", expected a piece"));
  EXPECT_THAT(BpeTokenizer::Create(MakeSpec(), {.eos_ids = {6}, .eos_ids_file = "config.json"}),
              IsInvalid("config.json: eos_token_id: token id 6, expected 0 to 5"));
}

TEST(BpeTokenizerTest, EncodesTheSameInManyThreads) {
  const auto tokenizer = MakeFromJson(ReadBpeTestData("llama3.json"));
  ASSERT_THAT(tokenizer, IsOk());
  const std::string text = "The little girl walked to the river; ﬁ ½ 日本語. ";
  const Ids expected = Encode(**tokenizer, text);
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

}  // namespace
}  // namespace lowkey

// Tokenizer files and texts that ask for far more work or memory than their size justifies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/testing/peak_memory.h"
#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/bpe/tokenizer_json.h"

namespace lowkey {
namespace {

using Json = nlohmann::json;

constexpr size_t kMiB = size_t{1} << 20;

std::string Repeat(std::string_view text, size_t n) {
  std::string repeated;
  for (size_t i = 0; i < n; ++i) repeated.append(text);
  return repeated;
}

// Looking for the end of the white space behind each of them would take a day.
TEST(HostileTokenizerTest, SpacesThatTakeTheSpaceBehindThem) {
  for (const bool left : {false, true}) {
    const auto tokens = AddedTokens::Create(
        {{.id = 1, .content = " ", .takes_left_space = left, .takes_right_space = true}},
        Rewriter({}));
    ASSERT_THAT(tokens, IsOk());
    size_t n_tokens = 0, n_texts = 0;
    const Section section = {.text = std::string(4 * kMiB, ' ') + "x" + "  ", .literal = {}};
    const absl::Status status = tokens->Split(
        section, {},
        [&](Section) {
          ++n_texts;
          return absl::OkStatus();
        },
        [&](int32_t) { ++n_tokens; });
    EXPECT_THAT(status, IsOk());
    EXPECT_EQ(n_tokens, 4 * kMiB + 2);  // one for each space, as Hugging Face's gives
    EXPECT_EQ(n_texts, 1u);
  }
}

TEST(HostileTokenizerTest, AddedTokensAreBoundedTogether) {
  std::vector<AddedToken> tokens;
  for (int32_t i = 0; i < 10'000; ++i) {
    tokens.push_back({.id = i, .content = absl::StrCat(i, std::string(500, 'a'))});
  }
  EXPECT_THAT(AddedTokens::Create(std::move(tokens), Rewriter({})),
              IsInvalid("more than 4194304 bytes together, expected at most 4194304"));
}

TEST(HostileTokenizerTest, TextsOfStepsAreShort) {
  const auto parse = [](const Json& step) {
    const Json document = {{"normalizer", step}};
    return ParseNormalizer(JsonValue(document, "tokenizer.json: ")).status();
  };
  const std::string fits(256, 'a'), is_long(4 * kMiB, 'a');
  const Json pattern = {{"String", "x"}};
  EXPECT_THAT(parse({{"type", "Prepend"}, {"prepend", fits}}), IsOk());
  EXPECT_THAT(parse({{"type", "Prepend"}, {"prepend", is_long}}),
              IsInvalid("normalizer.prepend: 4194304 bytes, expected at most 256"));
  EXPECT_THAT(parse({{"type", "Replace"}, {"pattern", pattern}, {"content", is_long}}),
              IsInvalid("normalizer.content: 4194304 bytes, expected at most 256"));
}

TEST(HostileTokenizerTest, TextsBetweenAddedTokensAreBoundedTogether) {
  BpeSpec spec;
  spec.vocabulary = {.pieces = {"a", "p"}};
  spec.added_tokens = {{.id = 2, .content = "|"}};
  spec.rewriter = {Prepend{std::string(256, 'p')}};
  const auto tokenizer = BpeTokenizer::Create(std::move(spec), {});
  ASSERT_THAT(tokenizer, IsOk());
  EXPECT_THAT((*tokenizer)->Encode(Repeat("a|", 1000)), IsOk());
  EXPECT_THAT((*tokenizer)->Encode(Repeat("a|", kMiB)),
              IsInvalid("text: over 16777216 bytes once it is normalized"));
}

// Each spelling doubles what is not ASCII.
TEST(HostileTokenizerTest, WordsBetweenAddedTokensAreBoundedTogether) {
  const auto make = [](int n_spellings) {
    BpeSpec spec;
    spec.vocabulary = {.pieces = {"a", "<unk>"}, .unk_piece = "<unk>"};
    spec.added_tokens = {{.id = 2, .content = "|"}};
    std::vector<PreTokenizerStep> steps;
    for (int i = 0; i < n_spellings; ++i) steps.emplace_back(Spell{});
    spec.pre_tokenizer = std::move(steps);
    return BpeTokenizer::Create(std::move(spec), {}).value();
  };
  EXPECT_THAT(make(1)->Encode(Repeat("é|", 20'000)), IsOk());
  EXPECT_THAT(make(12)->Encode(Repeat("é|", 20'000)), IsInvalid("its parts grow too much"));
}

// What grows and shrinks again costs its time all the same.
TEST(HostileTokenizerTest, AddedTokensAreNormalizedWithinOneBudget) {
  std::vector<AddedToken> tokens;
  for (int32_t i = 0; i < 1000; ++i) {
    tokens.push_back({.id = i, .content = absl::StrCat(i, "|xxxx"), .is_normalized = true});
  }
  const std::string grown(250, 'y');
  const auto create = [&](std::vector<RewriteStep> steps) {
    return AddedTokens::Create(tokens, Rewriter(std::move(steps))).status();
  };
  const auto replace = [](const std::string& from, const std::string& to) {
    return Replace{*Pattern::FromString(from), to};
  };
  EXPECT_THAT(create({replace("x", "y")}), IsOk());
  EXPECT_THAT(
      create({replace("x", grown), replace("y", grown), replace(grown, ""), replace("y", "")}),
      IsInvalid("its parts grow too much"));
}

// Else a hundred unknown characters would decode to 800 MiB.
TEST(HostileTokenizerTest, PiecesAreShort) {
  const auto create = [](size_t n_bytes) {
    const std::string unk(n_bytes, 'u');
    return BpeModel::Create({.pieces = {"a", unk}, .unk_piece = unk}).status();
  };
  EXPECT_THAT(create(2048), IsOk());
  const absl::Status status = create(8 * kMiB);
  EXPECT_THAT(status, IsInvalid("8388608 bytes, expected at most 2048"));
  EXPECT_LT(status.message().size(), 400u);
}

TEST(HostileTokenizerTest, NamesOfSpecialTokensAreCutInMessages) {
  BpeSpec spec;
  spec.vocabulary = {.pieces = {"a"}};
  const auto tokenizer =
      BpeTokenizer::Create(std::move(spec), {.bos_token = std::string(kMiB, 'b')});
  EXPECT_THAT(tokenizer, IsInvalid("expected a piece"));
  EXPECT_LT(tokenizer.status().message().size(), 400u);
}

TEST(HostileTokenizerTest, ListsOfManyItemsAreRefusedBeforeTheyAreRead) {
  std::string text = R"({"model": {"vocab": {"a": 0}, "merges": []}, "added_tokens": [0)";
  for (int i = 0; i < 2'000'000; ++i) text += ",0";
  text += "]}";
  absl::Status status;
  const size_t peak = PeakBytes([&] { status = ParseTokenizerJson(text).status(); });
  EXPECT_THAT(status,
              IsInvalid("added_tokens: an array of 2000001, expected at most 1048576 items"));
  EXPECT_LE(peak, 100 * kMiB);
}

}  // namespace
}  // namespace lowkey

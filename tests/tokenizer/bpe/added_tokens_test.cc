#include "tokenizer/bpe/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;

AddedTokens Make(std::vector<AddedToken> tokens) {
  auto made = AddedTokens::Create(std::move(tokens), Rewriter({}));
  EXPECT_THAT(made, IsOk());
  return *std::move(made);
}

// Tokens as "#id", the text between as it is.
std::vector<std::string> Split(const AddedTokens& tokens, const Section& section,
                               AddedTokens::Options options = {}) {
  std::vector<std::string> parts;
  const absl::Status status = tokens.Split(
      section, options,
      [&](Section part) {
        EXPECT_TRUE(part.literal.empty() || part.literal.size() == part.text.size());
        parts.push_back(absl::StrCat(part.begins_text ? "^" : "", part.text));
        return absl::OkStatus();
      },
      [&](int32_t id) { parts.push_back(absl::StrCat("#", id)); });
  EXPECT_THAT(status, IsOk());
  return parts;
}

std::vector<std::string> SplitText(const AddedTokens& tokens, std::string text) {
  return Split(tokens, {.text = std::move(text), .literal = {}, .begins_text = true});
}

TEST(AddedTokensTest, FindsTheLongestAtEachPlace) {
  const AddedTokens tokens = Make({{.id = 1, .content = "ab"}, {.id = 2, .content = "abc"}});
  EXPECT_THAT(SplitText(tokens, "xababcab"), ElementsAre("^x", "#1", "#2", "#1"));
  EXPECT_THAT(SplitText(tokens, "x"), ElementsAre("^x"));
  EXPECT_THAT(SplitText(tokens, ""), ElementsAre());
  EXPECT_THAT(SplitText(tokens, "abx"), ElementsAre("#1", "x"));
}

TEST(AddedTokensTest, SpecialsAreTextUnlessParsed) {
  const AddedTokens tokens =
      Make({{.id = 1, .content = "<s>", .is_special = true}, {.id = 2, .content = "<t>"}});
  EXPECT_THAT(SplitText(tokens, "<s>a<t>"), ElementsAre("^<s>a", "#2"));
  EXPECT_THAT(Split(tokens, {.text = "<s>a<t>", .literal = {}}, {.parse_special = true}),
              ElementsAre("#1", "a", "#2"));
}

TEST(AddedTokensTest, NoSpecialOverlapsWhatAUserWrote) {
  const AddedTokens tokens = Make({{.id = 1, .content = "<s>", .is_special = true},
                                   {.id = 2, .content = ">>>", .is_special = true},
                                   {.id = 3, .content = "<t>"}});
  const auto split = [&](std::string text, std::string literal) {
    return Split(tokens, {.text = std::move(text), .literal = std::move(literal)},
                 {.parse_special = true});
  };
  const char kUser[] = "\0\0\1\1\1\1\1\1\0\0\0";
  EXPECT_THAT(split("xx<s><t><s>", std::string(kUser, 11)), ElementsAre("xx<s>", "#3", "#1"));
  // The user's ">" does not take the template's along.
  EXPECT_THAT(split(">>>>", std::string("\1\0\0\0", 4)), ElementsAre(">", "#2"));
  EXPECT_THAT(split("<s>", std::string("\0\0\1", 3)), ElementsAre("<s>"));
}

TEST(AddedTokensTest, TakesSpaceAlong) {
  const AddedTokens tokens = Make({{.id = 1, .content = "L", .takes_left_space = true},
                                   {.id = 2, .content = "R", .takes_right_space = true}});
  EXPECT_THAT(SplitText(tokens, "a \u3000L b"), ElementsAre("^a", "#1", " b"));
  EXPECT_THAT(SplitText(tokens, "a R \n\u2003b"), ElementsAre("^a ", "#2", "b"));
  EXPECT_THAT(SplitText(tokens, " L"), ElementsAre("#1"));
  EXPECT_THAT(SplitText(tokens, "R L  "), ElementsAre("#2", "#1", "  "));
}

TEST(AddedTokensTest, SingleWordsStandAlone) {
  const AddedTokens tokens = Make({{.id = 1, .content = "w", .is_single_word = true}});
  EXPECT_THAT(SplitText(tokens, "w w."), ElementsAre("#1", " ", "#1", "."));
  for (const char* const text : {"ww", "aw", "wé", "w\u0301", "_w", "w9", "\u24B6w", "w\u200D"}) {
    EXPECT_THAT(SplitText(tokens, text), ElementsAre(absl::StrCat("^", text)));
  }
}

TEST(AddedTokensTest, LooksForNormalizedTokensInRewrittenText) {
  const Rewriter rewriter({Prepend{"_"}});
  const auto tokens = AddedTokens::Create(
      {{.id = 1, .content = "N", .is_normalized = true}, {.id = 2, .content = "N"}}, rewriter);
  ASSERT_THAT(tokens, IsOk());
  EXPECT_EQ(tokens->tokens()[0].searched, "_N");
  const Section section = {.text = "_N N", .literal = {}};
  EXPECT_THAT(Split(*tokens, section, {.in_rewritten_text = true}), ElementsAre("#1", " N"));
  EXPECT_THAT(Split(*tokens, section), ElementsAre("_", "#2", " ", "#2"));
}

TEST(AddedTokensTest, RejectsContentsThatCannotBeFound) {
  const auto create = [](std::vector<AddedToken> tokens, std::vector<RewriteStep> steps = {}) {
    return AddedTokens::Create(std::move(tokens), Rewriter(std::move(steps)));
  };
  EXPECT_THAT(create({{.id = 1, .content = ""}}),
              IsInvalid("added_tokens[0]: content: 0 bytes, expected 1 to 512"));
  EXPECT_THAT(create({{.id = 1, .content = std::string(513, 'x')}}), IsInvalid("513 bytes"));
  EXPECT_THAT(create({{.id = 1, .content = "\xFF"}}), IsInvalid("not UTF-8"));
  EXPECT_THAT(create({{.id = 1, .content = "a"}, {.id = 2, .content = "a"}}),
              IsInvalid("added_tokens[1]: \"a\" for the second time"));
  EXPECT_THAT(create({{.id = 1, .content = "a", .is_special = true, .is_normalized = true}},
                     {UnicodeForm::kNfc}),
              FailsWith(absl::StatusCode::kUnimplemented, "added_tokens[0]: a special token"));
  EXPECT_THAT(create({{.id = 1, .content = "a", .is_normalized = true}},
                     {Replace{*Pattern::FromString("a"), ""}}),
              IsInvalid("content: 0 bytes"));
}

}  // namespace
}  // namespace lowkey

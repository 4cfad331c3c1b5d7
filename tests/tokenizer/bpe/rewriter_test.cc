#include "tokenizer/bpe/rewriter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

Replace ReplaceString(const char* from, std::string to) {
  return {*Pattern::FromString(from), std::move(to)};
}

// Marks as text: '1' where a user wrote.
Section MakeSection(std::string text, std::string_view marks = "") {
  Section section = {.text = std::move(text), .literal = {}};
  for (const char mark : marks) section.literal.push_back(mark == '1' ? 1 : 0);
  return section;
}

std::string Marks(const Section& section) {
  std::string marks;
  for (const char mark : section.literal) marks.push_back(mark == 1 ? '1' : '0');
  return marks;
}

absl::Status Apply(std::vector<RewriteStep> steps, Section& section) {
  PatternBudget budget(section.text.size());
  return Rewriter(std::move(steps)).Apply(section, budget);
}

std::string Rewrite(std::vector<RewriteStep> steps, std::string text) {
  Section section = MakeSection(std::move(text));
  EXPECT_THAT(Apply(std::move(steps), section), IsOk());
  return section.text;
}

TEST(RewriterTest, PrependsAndReplacesInOrder) {
  EXPECT_EQ(Rewrite({Prepend{"▁"}, ReplaceString(" ", "▁")}, "a b"), "▁a▁b");
  EXPECT_EQ(Rewrite({ReplaceString("▁", ""), Prepend{"▁"}}, "▁a▁"), "▁a");
  EXPECT_EQ(Rewrite({Prepend{"▁"}}, ""), "");
}

TEST(RewriterTest, ReplacesWhatARegexMatches) {
  EXPECT_EQ(Rewrite({Replace{*Pattern::FromRegex(" {2,}"), "_"}}, "a  b c    d"), "a_b c_d");
}

TEST(RewriterTest, NormalizesToUnicodeForms) {
  EXPECT_EQ(Rewrite({UnicodeForm::kNfc}, "e\u0301\uFB01\u212B"), "\u00E9\uFB01\u00C5");
  EXPECT_EQ(Rewrite({UnicodeForm::kNfd}, "\u00E9\uFB01\uAC01"), "e\u0301\uFB01\u1100\u1161\u11A8");
  EXPECT_EQ(Rewrite({UnicodeForm::kNfkc}, "e\u0301\uFB01"), "\u00E9fi");
  EXPECT_EQ(Rewrite({UnicodeForm::kNfkd}, "\u00E9\uFB01\uFDFA").substr(0, 5), "e\u0301fi");
  EXPECT_EQ(Rewrite({UnicodeForm::kNfc}, std::string("a\0b", 3)), std::string("a\0b", 3));
}

// The characters that a character's decomposition consists of may each come from a longer one.
TEST(RewriterTest, UnicodeFormsShortenTextByAKnownFactor) {
  const size_t factor = *Rewriter({UnicodeForm::kNfkc}).MaxShrink();
  // Nothing is assigned in the planes from 4 to 13, and those above 14 are private.
  const auto for_each_code = [](const std::function<void(char32_t)>& take) {
    for (char32_t code = 1; code < 0xF0000; ++code) {
      if (code == 0x40000) code = 0xE0000;
      if (code < 0xD800 || code >= 0xE000) take(code);
    }
  };
  const auto text_of = [](char32_t code) {
    std::string text;
    AppendCodePoint(code, text);
    return text;
  };
  std::map<std::string, size_t> longest_source;  // of a character that nothing decomposes
  for_each_code([&](char32_t code) {
    const std::string text = text_of(code);
    const std::string parts = Rewrite({UnicodeForm::kNfkd}, text);
    EXPECT_LE(text.size(), factor * Rewrite({UnicodeForm::kNfkc}, text).size()) << uint32_t{code};
    if (Utf8Length(parts) == parts.size()) {
      size_t& longest = longest_source[parts];
      longest = std::max(longest, text.size());
    }
  });
  for_each_code([&](char32_t code) {
    const std::string text = text_of(code);
    if (Rewrite({UnicodeForm::kNfkc}, text) != text) return;
    const std::string parts = Rewrite({UnicodeForm::kNfkd}, text);
    size_t n_source = 0;
    for (std::string_view rest = parts; !rest.empty(); rest.remove_prefix(Utf8Length(rest))) {
      n_source += longest_source.at(std::string(rest.substr(0, Utf8Length(rest))));
    }
    EXPECT_LE(n_source, factor * text.size()) << uint32_t{code};
  });
}

TEST(RewriterTest, OrdersAMebibyteOfMarks) {
  std::string text = "a";
  while (text.size() < 1 << 20) text += "\u0301\u0323";  // above, below: each pair out of order
  const std::string ordered = Rewrite({UnicodeForm::kNfd}, text);
  EXPECT_EQ(ordered.size(), text.size());
  EXPECT_EQ(ordered.substr(0, 5), "a\u0323\u0323");
  EXPECT_EQ(ordered.substr(ordered.size() - 4), "\u0301\u0301");
}

TEST(RewriterTest, KeepsTrackOfWhatAUserWrote) {
  Section section = MakeSection("a bc d", "001111");
  EXPECT_THAT(Apply({Prepend{"__"}, ReplaceString(" ", "▁"), ReplaceString("bc", "")}, section),
              IsOk());
  EXPECT_EQ(section.text, "__a▁▁d");
  EXPECT_EQ(Marks(section), "0000001111");
  EXPECT_TRUE(section.HasLiteral(5, 7));
  EXPECT_FALSE(section.HasLiteral(0, 6));
  // A replacement is the user's if any of what it replaces is.
  Section mixed = MakeSection("xy", "01");
  EXPECT_THAT(Apply({ReplaceString("xy", "zzz")}, mixed), IsOk());
  EXPECT_EQ(Marks(mixed), "111");
}

TEST(RewriterTest, LimitsWhatTextBecomes) {
  Section section = MakeSection(std::string(1 << 20, ' '));
  EXPECT_THAT(Apply({ReplaceString(" ", std::string(17, 'x'))}, section),
              IsInvalid("over 16777216 bytes once it is normalized"));
  Section short_section = MakeSection("a");
  EXPECT_THAT(Apply({Prepend{std::string(Rewriter::kMaxRewrittenBytes, 'x')}}, short_section),
              IsInvalid("over 16777216 bytes"));
}

}  // namespace
}  // namespace lowkey

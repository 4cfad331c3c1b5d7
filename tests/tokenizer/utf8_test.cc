#include "tokenizer/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace lowkey {
namespace {

TEST(ExamineUtf8Test, AcceptsTheEdgesOfEveryLength) {
  for (const std::string& text :
       {std::string("\0", 1), std::string("\x7F"), std::string("\u0080"), std::string("\u07FF"),
        std::string("\u0800"), std::string("\uD7FF"), std::string("\uE000"), std::string("\uFFFF"),
        std::string("\U00010000"), std::string("\U0010FFFF")}) {
    const Utf8Char c = ExamineUtf8(text);
    EXPECT_EQ(c.kind, Utf8Kind::kValid) << testing::PrintToString(text);
    EXPECT_EQ(c.n_bytes, text.size());
    EXPECT_EQ(Utf8Length(text), text.size());
  }
}

TEST(ExamineUtf8Test, RejectsOverlongSurrogateAndTooLargeForms) {
  for (const char* text :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xFE", "\x80", "\xBF"}) {
    const Utf8Char c = ExamineUtf8(text);
    EXPECT_EQ(c.kind, Utf8Kind::kInvalid) << testing::PrintToString(text);
    EXPECT_EQ(c.n_bytes, 1u);
  }
}

TEST(ExamineUtf8Test, RejectsBrokenContinuation) {
  EXPECT_EQ(ExamineUtf8("\xE2(\xA1").kind, Utf8Kind::kInvalid);
  EXPECT_EQ(ExamineUtf8("\xF0\x9D\x84 ").kind, Utf8Kind::kInvalid);
}

TEST(ExamineUtf8Test, TellsTheBeginningOfACharacterFromGarbage) {
  const std::string clef = "\U0001D11E";
  for (size_t n = 1; n < clef.size(); ++n) {
    const Utf8Char c = ExamineUtf8(std::string_view(clef).substr(0, n));
    EXPECT_EQ(c.kind, Utf8Kind::kIncomplete);
    EXPECT_EQ(c.n_bytes, n);
  }
  // A truncated surrogate can never become valid.
  EXPECT_EQ(ExamineUtf8("\xED\xA0").kind, Utf8Kind::kInvalid);
}

TEST(FindInvalidUtf8Test, NamesTheFirstBadByte) {
  EXPECT_EQ(FindInvalidUtf8(""), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("caf\u00E9 \U0001F642"), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8(std::string_view("a\0b", 3)), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("ab\xFFzz"), 2u);
  EXPECT_EQ(FindInvalidUtf8("\u00E9\xE2\x96"), 2u);
}

TEST(CodePointTest, OneToFourBytesAreThereAndBack) {
  for (const char32_t code_point : {U'a', U'\u00e9', U'\u4e2d', U'\U0001f600'}) {
    std::string text = "x";
    AppendCodePoint(code_point, text);
    EXPECT_EQ(CodePointAt(text, 1), code_point);
    EXPECT_EQ(CharacterBytes(text, 1), text.size() - 1);
    EXPECT_EQ(LastCharacter(text), text.substr(1));
  }
}

TEST(CodePointTest, WhiteSpaceIsUnicodes) {
  for (const char32_t code_point : {U'\t', U'\r', U' ', U'\u0085', U'\u00a0', U'\u3000'}) {
    EXPECT_TRUE(IsWhiteSpace(code_point));
  }
  // Python's str.isspace has U+001C to U+001F, old regular expressions have U+180E.
  for (const char32_t code_point : {U'a', U'\u001c', U'\u180e', U'\u200b'}) {
    EXPECT_FALSE(IsWhiteSpace(code_point));
  }
}

}  // namespace
}  // namespace lowkey

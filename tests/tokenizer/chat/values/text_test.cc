#include "tokenizer/chat/values/text.h"

#include <gtest/gtest.h>

#include "tests/tokenizer/chat/render.h"
#include "tokenizer/utf8.h"

namespace lowkey::jinja {
namespace {

Text Mixed() {
  Text text("<a>");
  text.Append(Text::FromUser("user"));
  text.Append("</a>");
  return text;
}

TEST(TextTest, JoiningRemembersWhoWroteWhat) {
  Text text = Mixed();
  text.Append(Mixed());
  EXPECT_EQ(Marked(text), "<a>{user}</a><a>{user}</a>");
}

TEST(TextTest, NeighboringUserTextIsOneRange) {
  Text text = Text::FromUser("ab");
  text.Append(Text::FromUser("cd"));
  ASSERT_EQ(text.user_ranges().size(), 1u);
  EXPECT_EQ(Marked(text), "{abcd}");
}

TEST(TextTest, EmptyUserTextLeavesNoRange) {
  Text text("a");
  text.Append(Text::FromUser(""));
  EXPECT_FALSE(text.has_user_bytes());
}

TEST(TextTest, PartsCutRanges) {
  const Text text = Mixed();
  EXPECT_EQ(Marked(text.Part(0, 3)), "<a>");
  EXPECT_EQ(Marked(text.Part(2, 5)), ">{us}");
  EXPECT_EQ(Marked(text.Part(4, 6)), "{se}");
  EXPECT_EQ(Marked(text.Part(7, 11)), "</a>");
  EXPECT_EQ(Marked(text.Part(5, 5)), "");
}

TEST(TextTest, KnowsOfEachByteWhoWroteIt) {
  std::string users;
  for (size_t i = 0; i < Mixed().size(); ++i) users += Mixed().IsUsers(i) ? 'u' : '-';
  EXPECT_EQ(users, "---uuuu----");
}

TEST(TextTest, CodePointsOfOneToFourBytes) {
  for (const char32_t code_point : {U'a', U'\u00e9', U'\u4e2d', U'\U0001f600'}) {
    std::string bytes;
    AppendCodePoint(code_point, bytes);
    EXPECT_EQ(CodePointAt(bytes, 0), code_point);
    EXPECT_EQ(CharacterBytes(bytes, 0), bytes.size());
    EXPECT_EQ(CountCharacters(bytes + bytes), 2u);
  }
}

TEST(TextTest, StripsUnicodeSpaceFromTheAskedSide) {
  const std::string text = "\u00a0 a b\u3000\n";
  const auto stripped = [&text](StripSide side) {
    const ByteRange kept = StripSpace(text, side);
    return text.substr(kept.begin, kept.end - kept.begin);
  };
  EXPECT_EQ(stripped(StripSide::kBoth), "a b");
  EXPECT_EQ(stripped(StripSide::kLeft), "a b\u3000\n");
  EXPECT_EQ(stripped(StripSide::kRight), "\u00a0 a b");
}

TEST(TextTest, StripsWholeCharactersOfASet) {
  // U+00E9 and U+00EA share their first byte.
  const ByteRange kept = StripSet("\u00e9\u00eax\u00e9", "\u00e9", StripSide::kBoth);
  EXPECT_EQ(kept.begin, 2u);
  EXPECT_EQ(kept.end, 5u);
}

}  // namespace
}  // namespace lowkey::jinja

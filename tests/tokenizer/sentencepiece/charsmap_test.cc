#include "tokenizer/sentencepiece/charsmap.h"

#include <gtest/gtest.h>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

constexpr uint32_t kLeafBit = 1U << 8;
constexpr uint32_t kValueBit = 1U << 31;

// The unit at `position`, labeled `byte`, whose children lie in `block`.
uint32_t Unit(uint32_t byte, uint32_t position, uint32_t block) {
  return byte | (position ^ block) << 10;
}

TEST(CharsmapTest, FindsTheLongestRule) {
  const auto map = Charsmap::Create(MakeCharsmap({{"a", "1"}, {"abc", "3"}, {"\u00E9", ""}}));
  ASSERT_THAT(map, IsOk());
  EXPECT_EQ(map->LongestMatch("a")->replacement, "1");
  EXPECT_EQ(map->LongestMatch("abx")->n_bytes, 1u);
  EXPECT_EQ(map->LongestMatch("abcd")->n_bytes, 3u);
  EXPECT_EQ(map->LongestMatch("abcd")->replacement, "3");
  EXPECT_EQ(map->LongestMatch("\u00E9x")->n_bytes, 2u);
  EXPECT_EQ(map->LongestMatch("\u00E9x")->replacement, "");
  EXPECT_FALSE(map->LongestMatch("b").has_value());
  EXPECT_FALSE(map->LongestMatch(std::string_view("\0", 1)).has_value());
  EXPECT_FALSE(map->LongestMatch("").has_value());
}

TEST(CharsmapTest, NeverEndsARuleInsideACharacter) {
  const auto map =
      Charsmap::Create(MakeCharsmap({{"\xC3", "half"}, {"a", "1"}, {"a\xC3", "half"}}));
  ASSERT_THAT(map, IsOk());
  EXPECT_FALSE(map->LongestMatch("\u00E9").has_value());
  EXPECT_EQ(map->LongestMatch("a\u00E9")->n_bytes, 1u);
}

TEST(CharsmapTest, RejectsSizesThatDoNotFit) {
  EXPECT_THAT(Charsmap::Create("abc"), IsInvalid("3 bytes, expected at least 4"));
  EXPECT_THAT(Charsmap::Create(std::string("\0\0\0\0x\0", 6)), IsInvalid("trie of 0 bytes"));
  EXPECT_THAT(Charsmap::Create(std::string("\6\0\0\0abcdef\0", 11)), IsInvalid("trie of 6 bytes"));
  EXPECT_THAT(Charsmap::Create(std::string("\4\0\0\0abcd", 8)), IsInvalid("trie of 4 bytes"));
  EXPECT_THAT(Charsmap::Create("\xFF\xFF\xFF\xFFzzzz"), IsInvalid("trie of 4294967295 bytes"));
}

TEST(CharsmapTest, RejectsReplacementsWithoutFinalNul) {
  std::string bytes = MakeCharsmap({{"a", "b"}});
  bytes.pop_back();
  EXPECT_THAT(Charsmap::Create(bytes), IsInvalid("end without a NUL"));
}

TEST(CharsmapTest, RejectsRootThatLeadsOutside) {
  std::vector<uint32_t> units(256);
  units[0] = Unit(0, 0, 256);
  EXPECT_THAT(Charsmap::Create(JoinCharsmap(units, std::string(1, '\0'))),
              IsInvalid("trie unit 0: leads to unit 511, expected less than 256"));
  EXPECT_THAT(Charsmap::Create(JoinCharsmap({0}, std::string(1, '\0'))),
              IsInvalid("trie unit 0: leads to unit 255, expected less than 1"));
}

TEST(CharsmapTest, RejectsLaterUnitThatLeadsOutsideByTheShiftedOffset) {
  std::vector<uint32_t> units(512);
  units[0] = Unit(0, 0, 256);
  // Bit 9 set: the offset counts blocks of 256, here the largest there is.
  units[256 + 'a'] = 'a' | 1U << 9 | 0x1FFFFFU << 10;
  EXPECT_THAT(Charsmap::Create(JoinCharsmap(units, std::string(1, '\0'))),
              IsInvalid("leads to unit"));
}

TEST(CharsmapTest, RejectsCycle) {
  std::vector<uint32_t> units(512);
  units[0] = Unit(0, 0, 256);
  units[256 + 'a'] = Unit('a', 256 + 'a', 256);
  EXPECT_THAT(Charsmap::Create(JoinCharsmap(units, std::string(1, '\0'))), IsInvalid("cycle"));
}

TEST(CharsmapTest, AcceptsSharedSubtrees) {
  std::vector<uint32_t> units(1024);
  units[0] = Unit(0, 0, 256);
  units[256 + 'a'] = Unit('a', 256 + 'a', 512);
  units[256 + 'b'] = Unit('b', 256 + 'b', 512);
  units[512 + 'c'] = Unit('c', 512 + 'c', 768) | kLeafBit;
  units[768] = kValueBit | 0;
  const auto map = Charsmap::Create(JoinCharsmap(units, std::string("x\0", 2)));
  ASSERT_THAT(map, IsOk());
  EXPECT_EQ(map->LongestMatch("ac")->replacement, "x");
  EXPECT_EQ(map->LongestMatch("bc")->replacement, "x");
  EXPECT_FALSE(map->LongestMatch("c").has_value());
}

TEST(CharsmapTest, RejectsKeyOverTheLimitThroughSharedSubtreesToo) {
  const std::string longest(Charsmap::kMaxKeyBytes, 'k');
  EXPECT_THAT(Charsmap::Create(MakeCharsmap({{longest, "x"}})), IsOk());
  EXPECT_THAT(Charsmap::Create(MakeCharsmap({{longest + "k", "x"}})),
              IsInvalid("a key of 257 bytes or more, expected at most 256"));
  // 200 units below 'b', entered first through 'a' (one byte), then below 'c' and 99 more.
  std::vector<uint32_t> units(256 * 400);
  units[0] = Unit(0, 0, 256);
  const auto chain = [&](uint32_t first, uint32_t n) {
    for (uint32_t block = first; block < first + n; ++block) {
      units[block * 256 + 'k'] = Unit('k', block * 256 + 'k', (block + 1) * 256);
    }
  };
  chain(2, 200);
  units[256 + 'a'] = Unit('a', 256 + 'a', 2 * 256);
  units[256 + 'c'] = Unit('c', 256 + 'c', 300 * 256);
  chain(300, 80);
  units[379 * 256 + 'k'] = Unit('k', 379 * 256 + 'k', 2 * 256);
  EXPECT_THAT(Charsmap::Create(JoinCharsmap(units, std::string(1, '\0'))), IsInvalid("a key of"));
}

TEST(CharsmapTest, RejectsReplacementOutsideTheBlob) {
  std::vector<uint32_t> units(768);
  units[0] = Unit(0, 0, 256);
  units[256 + 'a'] = Unit('a', 256 + 'a', 512) | kLeafBit;
  units[512] = kValueBit | 2;
  EXPECT_THAT(Charsmap::Create(JoinCharsmap(units, std::string("x\0", 2))),
              IsInvalid("replacement at byte 2, expected less than 2"));
  units[512] = 0x7FFFFFFF;
  EXPECT_THAT(Charsmap::Create(JoinCharsmap(units, std::string("x\0", 2))),
              IsInvalid("replacement at byte 2147483647"));
}

TEST(CharsmapTest, RejectsReplacementTooLongOrNotUtf8) {
  const std::string longest(Charsmap::kMaxReplacementBytes, 'r');
  EXPECT_THAT(Charsmap::Create(MakeCharsmap({{"a", longest}})), IsOk());
  EXPECT_THAT(Charsmap::Create(MakeCharsmap({{"a", longest + "r"}})),
              IsInvalid("not terminated within 257 bytes"));
  EXPECT_THAT(Charsmap::Create(MakeCharsmap({{"a", "\xC3"}})), IsInvalid("not UTF-8"));
}

}  // namespace
}  // namespace lowkey

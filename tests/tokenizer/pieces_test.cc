#include "tokenizer/pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace lowkey {
namespace {

TEST(ParseBytePieceTest, TakesUpperCaseHexOnly) {
  EXPECT_EQ(ParseBytePiece("<0x00>"), 0);
  EXPECT_EQ(ParseBytePiece("<0xFE>"), 0xFE);
  for (const char* piece :
       {"<0xfe>", "<0x0>", "<0x000>", "0x00", "<0x0G>", "<0X00>", "<0x00 ", ""}) {
    EXPECT_EQ(ParseBytePiece(piece), std::nullopt) << piece;
  }
}

std::vector<std::string> Prefixes(const PieceTrie& trie, std::string_view text) {
  std::vector<std::string> found;
  trie.ForEachPrefix(text, [&](PieceTrie::Match match) {
    found.push_back(std::string(text.substr(0, match.n_bytes)) + ":" + std::to_string(match.id));
  });
  return found;
}

TEST(PieceTrieTest, VisitsEveryPrefixShortestFirst) {
  const PieceTrie trie({{"abc", 3}, {"a", 1}, {"b", 9}, {"abcde", 5}, {"abd", 4}});
  EXPECT_THAT(Prefixes(trie, "abcdx"), testing::ElementsAre("a:1", "abc:3"));
  EXPECT_THAT(Prefixes(trie, "abcde"), testing::ElementsAre("a:1", "abc:3", "abcde:5"));
  EXPECT_THAT(Prefixes(trie, "abd"), testing::ElementsAre("a:1", "abd:4"));
  EXPECT_THAT(Prefixes(trie, "xabc"), testing::IsEmpty());
  EXPECT_THAT(Prefixes(trie, ""), testing::IsEmpty());
}

TEST(PieceTrieTest, WithoutKeysFindsNothing) {
  const PieceTrie trie({});
  EXPECT_FALSE(trie.LongestPrefix("a").has_value());
  EXPECT_FALSE(trie.LongestPrefix("").has_value());
}

TEST(PieceTrieTest, HoldsEveryByteBelowOneNode) {
  std::vector<std::string> keys;
  for (int byte = 0; byte < 256; ++byte) keys.push_back({'k', static_cast<char>(byte)});
  std::vector<PieceTrie::Entry> entries;
  for (int byte = 0; byte < 256; ++byte) entries.push_back({keys[byte], byte});
  const PieceTrie trie(entries);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(trie.LongestPrefix(keys[byte])->id, byte);
  EXPECT_FALSE(trie.LongestPrefix("k").has_value());
}

TEST(PieceTrieTest, LongestPrefixPassesOverGapsWithoutKeys) {
  const PieceTrie trie({{"a", 0}, {"aaaa", 1}});
  EXPECT_EQ(trie.LongestPrefix("aaa")->n_bytes, 1u);
  EXPECT_EQ(trie.LongestPrefix("aaaaa")->n_bytes, 4u);
}

}  // namespace
}  // namespace lowkey

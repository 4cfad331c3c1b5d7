#include "engine/cache/prefix_index.h"

#include <map>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

using Index = PrefixIndex<std::string, std::string>;
using Tokens = std::vector<int32_t>;

// Pages of one repeated token each.
Tokens Pages(const Tokens& pages, int64_t n_more = 0) {
  Tokens tokens;
  for (int32_t page : pages) tokens.insert(tokens.end(), kPageTokens, page);
  tokens.insert(tokens.end(), n_more, 99);
  return tokens;
}

void Add(Index& index, const std::string& key, const Tokens& tokens, const std::string& name) {
  index.Add(key, tokens,
            [&](int64_t n, const std::string*) { return std::optional(name + std::to_string(n)); });
}

std::string Found(Index& index, const std::string& key, const Tokens& tokens,
                  int64_t max_tokens = 1 << 20) {
  const auto match = index.Find(key, tokens, max_tokens);
  if (match.value == nullptr) {
    EXPECT_EQ(match.n_tokens, 0);
    return "nothing";
  }
  return *match.value;
}

TEST(PrefixIndexTest, FindsTheLongestPrefixOfWholePages) {
  Index index;
  Add(index, "k", Pages({1, 2, 3}, 10), "a");
  EXPECT_EQ(index.n_values(), 3);
  EXPECT_EQ(Found(index, "k", Pages({1, 2, 3}, 10)), "a192");
  EXPECT_EQ(Found(index, "k", Pages({1, 2, 3, 4})), "a192");
  EXPECT_EQ(Found(index, "k", Pages({1, 2, 4})), "a128");
  EXPECT_EQ(Found(index, "k", Pages({1}, 63)), "a64");
  EXPECT_EQ(Found(index, "k", Pages({2, 1})), "nothing");
  EXPECT_EQ(Found(index, "k", {}), "nothing");
  EXPECT_EQ(Found(index, "k", Pages({1, 2, 3}), 191), "a128");
  EXPECT_EQ(Found(index, "k", Pages({1, 2, 3}), 63), "nothing");
}

TEST(PrefixIndexTest, AValueThatThrowsLeavesThoseBeforeIt) {
  Index index;
  const auto add = [&](int64_t thrown_at) {
    index.Add("k", Pages({1, 2, 3}),
              [&](int64_t n, const std::string*) -> std::optional<std::string> {
                if (n == thrown_at) throw std::bad_alloc();
                return n == 64 ? std::nullopt : std::optional("a" + std::to_string(n));
              });
  };
  EXPECT_THROW(add(128), std::bad_alloc);
  EXPECT_FALSE(index.DropOldest());  // nor does what led there stay
  EXPECT_THROW(add(192), std::bad_alloc);
  EXPECT_EQ(Found(index, "k", Pages({1, 2, 3})), "a128");
  add(0);
  EXPECT_EQ(Found(index, "k", Pages({1, 2, 3})), "a192");
  EXPECT_EQ(index.n_values(), 2);
}

TEST(PrefixIndexTest, OneTokenOfDifferenceIsAnotherPrefix) {
  Index index;
  Tokens tokens = Pages({1, 2});
  Add(index, "k", tokens, "a");
  tokens[127] = 3;
  EXPECT_EQ(Found(index, "k", tokens), "a64");
  tokens[0] = 3;
  EXPECT_EQ(Found(index, "k", tokens), "nothing");
}

TEST(PrefixIndexTest, KeysSeeNothingOfEachOther) {
  Index index;
  Add(index, "k", Pages({1}), "a");
  EXPECT_EQ(Found(index, "l", Pages({1})), "nothing");
  Add(index, "l", Pages({1}), "b");
  EXPECT_EQ(Found(index, "k", Pages({1})), "a64");
  EXPECT_EQ(Found(index, "l", Pages({1})), "b64");
}

TEST(PrefixIndexTest, WhatIsThereStays) {
  Index index;
  Add(index, "k", Pages({1, 2}), "a");
  Add(index, "k", Pages({1, 3}), "b");
  EXPECT_EQ(Found(index, "k", Pages({1})), "a64");
  EXPECT_EQ(Found(index, "k", Pages({1, 3})), "b128");
  EXPECT_EQ(index.n_values(), 3);
}

TEST(PrefixIndexTest, PrefixesWithoutAValueOnlyLeadToOthers) {
  Index index;
  index.Add("k", Pages({1, 2, 3, 4}), [](int64_t n, const std::string*) {
    return n == 192 ? std::optional<std::string>("a") : std::nullopt;
  });
  EXPECT_EQ(index.n_values(), 1);
  EXPECT_EQ(Found(index, "k", Pages({1, 2})), "nothing");
  EXPECT_EQ(Found(index, "k", Pages({1, 2, 3, 4})), "a");
  EXPECT_TRUE(index.DropOldest());
  EXPECT_FALSE(index.DropOldest());  // what led to it is gone with it
}

TEST(PrefixIndexTest, AValueIsMadeBesideTheOneBeforeIt) {
  Index index;
  std::vector<std::string> before;
  const auto make = [&](int64_t n, const std::string* value) -> std::optional<std::string> {
    before.push_back(value == nullptr ? "none" : *value);
    if (n == 128) return std::nullopt;
    return std::to_string(n);
  };
  index.Add("k", Pages({1, 2, 3}), make);
  EXPECT_EQ(before, (std::vector<std::string>{"none", "64", "64"}));
  before.clear();
  index.Add("k", Pages({1, 2, 3, 4}), make);
  EXPECT_EQ(before, (std::vector<std::string>{"64", "192"}));
}

TEST(PrefixIndexTest, NothingStaysOfPrefixesThatNobodyCanUse) {
  Index index;
  index.Add("k", Pages({1, 2}),
            [](int64_t, const std::string*) { return std::optional<std::string>(); });
  EXPECT_EQ(index.n_values(), 0);
  EXPECT_FALSE(index.DropOldest());
}

TEST(PrefixIndexTest, DropsWhatWasUsedLongestAgoAndLeavesFirst) {
  Index index;
  Add(index, "k", Pages({1, 2}), "a");
  Add(index, "k", Pages({5}), "b");
  Add(index, "l", Pages({7}), "c");
  EXPECT_EQ(Found(index, "k", Pages({1})), "a64");  // its first page was used again
  ASSERT_TRUE(index.DropOldest());                  // page 2 after page 1
  EXPECT_EQ(Found(index, "k", Pages({1, 2})), "a64");
  ASSERT_TRUE(index.DropOldest());
  EXPECT_EQ(Found(index, "k", Pages({5})), "nothing");
  ASSERT_TRUE(index.DropOldest());
  EXPECT_EQ(Found(index, "l", Pages({7})), "nothing");
  EXPECT_EQ(Found(index, "k", Pages({1})), "a64");
}

TEST(PrefixIndexTest, AThousandKeysAreBounded) {
  Index index;
  for (int i = 0; i < 1000; ++i) Add(index, std::to_string(i), Pages({1}), "v");
  EXPECT_EQ(index.n_values(), static_cast<int64_t>(Index::kMaxKeys));
  EXPECT_EQ(Found(index, "999", Pages({1})), "v64");
  EXPECT_EQ(Found(index, "0", Pages({1})), "nothing");
}

// Against a map of whole token lists.
TEST(PrefixIndexTest, FindsWhatAPlainMapFinds) {
  Index index;
  std::map<std::pair<std::string, Tokens>, std::string> plain;
  std::mt19937 rng(1);
  const auto draw = [&rng](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  for (int i = 0; i < 3000; ++i) {
    const std::string key(1, static_cast<char>('a' + draw(2)));
    Tokens pages;
    for (int n = 1 + draw(4); n > 0; --n) pages.push_back(draw(3));
    if (draw(2) == 0) {
      const std::string name = std::to_string(i) + ":";
      Add(index, key, Pages(pages, draw(64)), name);
      for (size_t n = 1; n <= pages.size(); ++n) {
        plain.try_emplace({key, Tokens(pages.begin(), pages.begin() + static_cast<long>(n))},
                          name + std::to_string(n * kPageTokens));
      }
      continue;
    }
    std::string expected = "nothing";
    for (size_t n = 1; n <= pages.size(); ++n) {
      const auto it =
          plain.find({key, Tokens(pages.begin(), pages.begin() + static_cast<long>(n))});
      if (it != plain.end()) expected = it->second;
    }
    ASSERT_EQ(Found(index, key, Pages(pages, draw(64))), expected);
  }
  EXPECT_EQ(index.n_values(), static_cast<int64_t>(plain.size()));
  int64_t n_dropped = 0;
  while (index.DropOldest()) ++n_dropped;
  EXPECT_EQ(n_dropped, static_cast<int64_t>(plain.size()));
  EXPECT_EQ(index.n_values(), 0);
}

}  // namespace
}  // namespace lowkey

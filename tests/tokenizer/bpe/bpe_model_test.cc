#include "tokenizer/bpe/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ids = std::vector<int32_t>;

Ids Encode(const BpeVocabulary& vocabulary, std::string_view word) {
  const auto model = BpeModel::Create(vocabulary);
  EXPECT_THAT(model, IsOk());
  Ids ids;
  EXPECT_TRUE(model->Encode(word, nullptr, ids).ok());
  return ids;
}

TEST(BpeModelTest, MergesTheEarliestPairFirst) {
  const BpeVocabulary vocabulary = {.pieces = {"a", "b", "c", "ab", "bc", "abc"},
                                    .merges = {{"b", "c"}, {"a", "b"}, {"a", "bc"}}};
  EXPECT_THAT(Encode(vocabulary, "abc"), ElementsAre(5));
  EXPECT_THAT(Encode(vocabulary, "ababc"), ElementsAre(3, 5));
}

TEST(BpeModelTest, OfEqualPairsTheLeftmostMergesFirst) {
  const BpeVocabulary vocabulary = {.pieces = {"a", "aa"}, .merges = {{"a", "a"}}};
  EXPECT_THAT(Encode(vocabulary, "aaa"), ElementsAre(1, 0));
  EXPECT_THAT(Encode(vocabulary, ""), IsEmpty());
}

TEST(BpeModelTest, OfAPairThatIsThereTwiceTheLastCounts) {
  const BpeVocabulary vocabulary = {.pieces = {"a", "b", "c", "ab", "bc"},
                                    .merges = {{"a", "b"}, {"b", "c"}, {"a", "b"}}};
  EXPECT_THAT(Encode(vocabulary, "abc"), ElementsAre(0, 4));
}

TEST(BpeModelTest, CharactersWithoutAPieceAreDroppedOrUnknown) {
  BpeVocabulary vocabulary = {.pieces = {"a", "<unk>"}, .merges = {}};
  EXPECT_THAT(Encode(vocabulary, "xaxxa"), ElementsAre(0, 0));
  vocabulary.unk_piece = "<unk>";
  EXPECT_THAT(Encode(vocabulary, "xaéx"), ElementsAre(1, 0, 1, 1));
  vocabulary.fuses_unk = true;
  EXPECT_THAT(Encode(vocabulary, "xaéx"), ElementsAre(1, 0, 1));
}

TEST(BpeModelTest, FallsToBytesWhereTheVocabularyHasAllOfThem) {
  const BpeVocabulary vocabulary = {.pieces = {"a", "<unk>", "<0xC3>", "<0xA9>"},
                                    .merges = {},
                                    .unk_piece = "<unk>",
                                    .falls_to_bytes = true};
  EXPECT_THAT(Encode(vocabulary, "éa"), ElementsAre(2, 3, 0));
  EXPECT_THAT(Encode(vocabulary, "ê"), ElementsAre(1));
  // The unknown token comes behind the bytes after it, as in Hugging Face's.
  EXPECT_THAT(Encode(vocabulary, "êéa"), ElementsAre(2, 3, 1, 0));
}

TEST(BpeModelTest, AWordThatIsAPieceIsTakenWholeWhereMergesAreIgnored) {
  BpeVocabulary vocabulary = {.pieces = {"a", "b", "ab", "", "aba"}, .merges = {}};
  EXPECT_THAT(Encode(vocabulary, "ab"), ElementsAre(0, 1));
  vocabulary.ignores_merges = true;
  EXPECT_THAT(Encode(vocabulary, "ab"), ElementsAre(2));
  EXPECT_THAT(Encode(vocabulary, "abab"), ElementsAre(0, 1, 0, 1));
}

TEST(BpeModelTest, RejectsVocabulariesThatDoNotFit) {
  using V = BpeVocabulary;
  EXPECT_THAT(BpeModel::Create(V{}), IsInvalid("vocab: 0 pieces, expected 1 to 1048576"));
  EXPECT_THAT(BpeModel::Create(V{.pieces = std::vector<std::string>(BpeModel::kMaxPieces + 1)}),
              IsInvalid("vocab: 1048577 pieces"));
  EXPECT_THAT(BpeModel::Create(V{.pieces = {"a", "a"}}), IsInvalid("vocab: \"a\" twice"));
  EXPECT_THAT(BpeModel::Create(V{.pieces = {"\xFF"}}), IsInvalid("not UTF-8"));
  EXPECT_THAT(BpeModel::Create(V{.pieces = {"a"}, .unk_piece = "u"}),
              IsInvalid("unk_token: \"u\""));
  for (const MergeRule& merge : {MergeRule{"a", "b"}, {"a", "x"}, {"x", "a"}, {"", "a"}}) {
    EXPECT_THAT(BpeModel::Create(V{.pieces = {"a", "b"}, .merges = {merge}}),
                IsInvalid("merges[0]: "));
  }
}

// Merges as they are defined, pair by pair, over the whole word each time.
Ids MergeSlowly(const BpeVocabulary& vocabulary, const std::string& word) {
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  for (;;) {
    size_t best_rank = vocabulary.merges.size(), best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        const MergeRule& merge = vocabulary.merges[rank];
        if (merge.left != symbols[i] || merge.right != symbols[i + 1]) continue;
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == vocabulary.merges.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) {
    const auto it = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), symbol);
    ids.push_back(static_cast<int32_t>(it - vocabulary.pieces.begin()));
  }
  return ids;
}

TEST(BpeModelTest, MergesShortAndLongWordsByTheDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    BpeVocabulary vocabulary = {.pieces = {"a", "b", "c"}, .merges = {}};
    for (int i = 0; i < 20; ++i) {
      const std::string left = vocabulary.pieces[random() % vocabulary.pieces.size()];
      const std::string right = vocabulary.pieces[random() % vocabulary.pieces.size()];
      const auto& pieces = vocabulary.pieces;
      const bool is_new = std::find(pieces.begin(), pieces.end(), left + right) == pieces.end();
      if (is_new) vocabulary.pieces.push_back(left + right);
      // A pair may come twice only with one rank, or the slow way would take the first.
      if (is_new) vocabulary.merges.push_back({left, right});
    }
    for (const size_t n : {2u, 23u, 24u, 25u, 26u, 200u}) {
      std::string word;
      for (size_t i = 0; i < n; ++i) word.push_back(static_cast<char>('a' + random() % 3));
      ASSERT_EQ(Encode(vocabulary, word), MergeSlowly(vocabulary, word)) << word;
    }
  }
}

}  // namespace
}  // namespace lowkey

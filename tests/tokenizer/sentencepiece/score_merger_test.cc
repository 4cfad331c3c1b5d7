#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/sentencepiece/segmentation.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class BpeTest : public testing::Test {
 protected:
  std::vector<std::string> Cut(std::string_view text) const {
    std::vector<PieceTrie::Entry> entries;
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      if (model_.pieces[id].type != PieceType::kUserDefined) continue;
      entries.push_back({model_.pieces[id].text, static_cast<int32_t>(id)});
    }
    const PieceTrie user_defined(entries);
    return CutPieces(*MakeBpeSegmenter(model_, user_defined), text);
  }

  void SetPieces(const std::vector<std::string>& pieces) {
    model_ = MakeModel(SegmentationType::kBpe, pieces);
  }

  void SetType(const std::string& text, PieceType type) {
    for (Piece& piece : model_.pieces) {
      if (piece.text == text) piece.type = type;
    }
  }

  ModelProto model_;
};

TEST_F(BpeTest, MergesTheBestPairFirst) {
  SetPieces({"bc", "ab", "a", "b", "c"});
  EXPECT_THAT(Cut("abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(Cut("abbc"), ElementsAre("ab", "bc"));
}

TEST_F(BpeTest, MergesTheLeftmostOfEqualPairs) {
  SetPieces({"aa", "a"});
  EXPECT_THAT(Cut("aaa"), ElementsAre("aa", "a"));
  EXPECT_THAT(Cut("aaaaa"), ElementsAre("aa", "aa", "a"));
}

TEST_F(BpeTest, ReachesNoPieceWithoutAPathOfMerges) {
  SetPieces({"abc", "a", "b", "c"});
  EXPECT_THAT(Cut("abc"), ElementsAre("a", "b", "c"));
}

TEST_F(BpeTest, CutsUnknownCharactersOneByOne) {
  SetPieces({"a"});
  EXPECT_THAT(Cut("a日本"), ElementsAre("a", "[日]", "[本]"));
}

TEST_F(BpeTest, MergesCharactersThatAreNoPieces) {
  SetPieces({"日本"});
  EXPECT_THAT(Cut("日本日"), ElementsAre("日本", "[日]"));
}

TEST_F(BpeTest, TextThatSpellsAControlPieceIsText) {
  SetPieces({"s", "<s", "<", ">"});
  EXPECT_THAT(Cut("<s>"), ElementsAre("<s", ">"));
  SetPieces({"a", "c"});
  SetType("c", PieceType::kControl);
  EXPECT_THAT(Cut("ac"), ElementsAre("a", "[c]"));
}

TEST_F(BpeTest, TakesUserDefinedPiecesWholeAndNeverMergesThem) {
  SetPieces({"aX", "Xb", "a", "b", "XX", "X"});
  SetType("X", PieceType::kUserDefined);
  EXPECT_THAT(Cut("aXb"), ElementsAre("a", "X", "b"));
  EXPECT_THAT(Cut("XX"), ElementsAre("X", "X"));
  SetType("XX", PieceType::kUserDefined);
  EXPECT_THAT(Cut("XXX"), ElementsAre("XX", "X"));
}

TEST_F(BpeTest, UndoesUnusedPiecesIntoTheirParts) {
  SetPieces({"ab", "abc", "a", "b", "c", "abcd", "d"});
  SetType("abc", PieceType::kUnused);
  EXPECT_THAT(Cut("abc"), ElementsAre("ab", "c"));
  EXPECT_THAT(Cut("abcd"), ElementsAre("abcd"));
  SetType("abcd", PieceType::kUnused);
  SetType("ab", PieceType::kUnused);
  EXPECT_THAT(Cut("abcd"), ElementsAre("a", "b", "c", "d"));
}

TEST_F(BpeTest, EmptyTextHasNoPieces) {
  SetPieces({"a"});
  EXPECT_THAT(Cut(""), IsEmpty());
}

TEST_F(BpeTest, JoinsALongRunByDoubling) {
  SetPieces({"aa", "aaaa", "aaaaaaaa", "a"});
  const std::vector<std::string> pieces = Cut(std::string(100003, 'a'));
  ASSERT_EQ(pieces.size(), 12502u);
  EXPECT_EQ(pieces[0], "aaaaaaaa");
  EXPECT_EQ(pieces[12500], "aa");
  EXPECT_EQ(pieces[12501], "a");
}

}  // namespace
}  // namespace lowkey

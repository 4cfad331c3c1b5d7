#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/sentencepiece/segmentation.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ModelProto Model(const std::vector<Piece>& pieces) {
  ModelProto model = MakeModel(SegmentationType::kUnigram, {});
  model.pieces.insert(model.pieces.end(), pieces.begin(), pieces.end());
  return model;
}

std::vector<std::string> Cut(const ModelProto& model, std::string_view text) {
  return CutPieces(*MakeUnigramSegmenter(model), text);
}

TEST(UnigramTest, TakesTheMostProbablePath) {
  const ModelProto model = Model({{"a", -1}, {"b", -1}, {"ab", -3}, {"c", -1}, {"bc", -1.5}});
  EXPECT_THAT(Cut(model, "ab"), ElementsAre("a", "b"));
  EXPECT_THAT(Cut(model, "abc"), ElementsAre("a", "bc"));
}

TEST(UnigramTest, KeepsTheFirstOfEqualPaths) {
  // Offered in the order of where the last piece begins: "ab" from 0 comes before "b" from 1.
  EXPECT_THAT(Cut(Model({{"a", -1}, {"b", -1}, {"ab", -2}}), "ab"), ElementsAre("ab"));
}

TEST(UnigramTest, UnknownCharacterCostsMoreThanAnyPiece) {
  const ModelProto model = Model({{"a", -1}, {"é", -5}, {"aé", -14}});
  EXPECT_THAT(Cut(model, "aé"), ElementsAre("a", "é"));
  EXPECT_THAT(Cut(model, "a日é"), ElementsAre("a", "[日]", "é"));
  // "aé" is chosen over an unknown "é" although it is far less likely than "a".
  EXPECT_THAT(Cut(Model({{"a", -1}, {"aé", -14}}), "aé"), ElementsAre("aé"));
}

TEST(UnigramTest, UserDefinedPieceWins) {
  const ModelProto model = Model({{"a", -1},
                                  {"b", -1},
                                  {"ab", -0.5},
                                  {"abc", 0},
                                  {"bX", -0.01F},
                                  {"X", 0, PieceType::kUserDefined}});
  EXPECT_THAT(Cut(model, "abX"), ElementsAre("ab", "X"));
}

TEST(UnigramTest, UnusedControlAndBytePiecesAreNeverChosen) {
  const ModelProto model = Model({{"a", -1}, {"b", -1}, {"ab", 0, PieceType::kUnused}});
  EXPECT_THAT(Cut(model, "ab"), ElementsAre("a", "b"));
  EXPECT_THAT(Cut(model, "<s>"), ElementsAre("[<]", "[s]", "[>]"));
}

TEST(UnigramTest, SurvivesScoresThatOverflow) {
  const ModelProto model = Model({{"a", -FLT_MAX}, {"aa", FLT_MAX}, {"b", -FLT_MAX}});
  const std::vector<std::string> pieces = Cut(model, "aaaaabbbb日日bbaaab");
  std::string joined;
  for (const std::string& piece : pieces) {
    joined += piece.front() == '[' ? piece.substr(1, piece.size() - 2) : piece;
  }
  EXPECT_EQ(joined, "aaaaabbbb日日bbaaab");
}

TEST(UnigramTest, WorksWithoutNormalPieces) {
  EXPECT_THAT(Cut(Model({}), "é"), ElementsAre("[é]"));
  EXPECT_THAT(Cut(Model({}), ""), IsEmpty());
}

}  // namespace
}  // namespace lowkey

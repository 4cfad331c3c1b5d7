#include "tokenizer/byte_piece.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lowkey

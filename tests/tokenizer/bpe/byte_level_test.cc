#include "tokenizer/bpe/byte_level.h"

#include <gtest/gtest.h>

#include <set>

#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

std::string Spelled(std::string_view bytes) {
  std::string out;
  AppendSpelled(bytes, out);
  return out;
}

TEST(ByteLevelTest, SpellsPrintableBytesAsThemselves) {
  EXPECT_EQ(Spelled("az!~"), "az!~");
  EXPECT_EQ(Spelled("\xA1\xAC\xAE\xFF"), "\u00A1\u00AC\u00AE\u00FF");
}

TEST(ByteLevelTest, SpellsTheOthersInOrder) {
  EXPECT_EQ(Spelled(std::string_view("\0\1 \n\x7F\x80\xA0\xAD", 8)),
            "\u0100\u0101\u0120\u010A\u0121\u0122\u0142\u0143");
}

TEST(ByteLevelTest, EveryByteComesBack) {
  std::set<std::string> seen;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const std::string spelled = Spelled(bytes);
    EXPECT_EQ(FindInvalidUtf8(spelled), std::nullopt);
    EXPECT_TRUE(seen.insert(spelled).second);
    EXPECT_EQ(UnspellBytes(spelled), bytes);
  }
}

TEST(ByteLevelTest, LeavesWhatIsNotSpelledSo) {
  for (const char* const text : {"a b", "日本", "\u0144", "a\u00AD", "\U0001F642", "\n"}) {
    EXPECT_EQ(UnspellBytes(text), text);
  }
}

}  // namespace
}  // namespace lowkey

#include "engine/base/percents.h"

#include <string>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

TEST(Percents, StandForCharacters) {
  EXPECT_EQ(WithoutPercents("a%2Fb%2f%C3%A9%00c"), std::string("a/b/\xC3\xA9\0c", 8));
  EXPECT_EQ(PercentCharacter("%41BC"), 'A');
}

TEST(Percents, StayWithoutTheirDigits) {
  for (const char* text : {"", "a", "%", "%4", "%g1", "%1g", "%%", "+", "a%2"}) {
    EXPECT_EQ(WithoutPercents(text), text);
    EXPECT_EQ(PercentCharacter(text), std::nullopt);
  }
  EXPECT_EQ(WithoutPercents("%%41"), "%A");
  EXPECT_EQ(WithoutPercents("%2541"), "%41") << "decoded once";
}

}  // namespace
}  // namespace lowkey

#include "server/request/call_id.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

using ::testing::MatchesRegex;

TEST(CallId, IsTheClientsWhereThatIsValid) {
  const CallId id = TakeCallId("6f9c-1/a");
  EXPECT_EQ(id.text, "6f9c-1/a");
  EXPECT_TRUE(id.is_clients);
  EXPECT_TRUE(TakeCallId(std::string(kMaxRequestIdBytes, 'x')).is_clients);
}

TEST(CallId, IsDrawnElse) {
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a\r\nb: c"), std::string("\xC3\xA9"),
        std::string(kMaxRequestIdBytes + 1, 'x')}) {
    const CallId id = TakeCallId(bad);
    EXPECT_THAT(id.text, MatchesRegex("[0-9a-f]{16}"));
    EXPECT_FALSE(id.is_clients);
  }
  EXPECT_NE(TakeCallId(std::nullopt).text, TakeCallId(std::nullopt).text);
}

TEST(CallId, GenerationsOfAClientsIdDiffer) {
  const CallId drawn = TakeCallId(std::nullopt), clients = TakeCallId("job");
  EXPECT_EQ(GenerationId(drawn), drawn.text);
  EXPECT_THAT(GenerationId(clients), MatchesRegex("job-[0-9a-f]{8}"));
  EXPECT_NE(GenerationId(clients), GenerationId(clients));
  const std::string longest = GenerationId(TakeCallId(std::string(kMaxRequestIdBytes, 'x')));
  EXPECT_EQ(longest.size(), kMaxRequestIdBytes);
  EXPECT_TRUE(IsRequestId(longest));
  EXPECT_TRUE(IsRequestId(GenerationId({})));
}

}  // namespace
}  // namespace lowkey

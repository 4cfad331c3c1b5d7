// The fuzz target over mutations of a good file, always the same ones.

#include <gtest/gtest.h>

#include "server/auth/token_table.h"
#include "tests/fuzz/json_mutations.h"

namespace lowkey {
namespace {

const std::string& Seed() {
  static const auto* const seed =
      new std::string(R"({"tenants": [{"name": "a", "weight": 2.5, "max_live_requests": 8,)"
                      R"( "tokens_per_minute": 600, "tokens": [{"token": "first-token-0000000000",)"
                      R"( "rights": ["generate", "read", "admin"]}, {"sha256": ")" +
                      std::string(64, 'a') +
                      R"("}]}, {"name": "b", "tokens": [{"token": "second-token-0000000000"}]}]})");
  return *seed;
}

TEST(TokenTableFuzzTest, AcceptsItsSeed) {
  const auto table = TokenTable::Parse(Seed(), "tokens.json");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_NE(table->Find("first-token-0000000000"), nullptr);
  RunTarget(Seed());
}

TEST(TokenTableFuzzTest, SurvivesTruncation) {
  for (size_t n = 0; n < Seed().size(); ++n) RunTarget(Seed().substr(0, n));
}

TEST(TokenTableFuzzTest, SurvivesMutation) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) RunTarget(MutateJson(Seed(), Seed().size(), random));
}

}  // namespace
}  // namespace lowkey

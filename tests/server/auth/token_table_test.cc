#include "server/auth/token_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "a-token-of-some-length";
// The output of `printf a-token-of-some-length | sha256sum`.
constexpr char kTokenHash[] = "4f0d205b316ab19696f52d3dc08107a4186c12b117a2a23581353b462001edee";

std::string Refusal(const std::string& json) {
  const auto table = TokenTable::Parse(json, "tokens.json");
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_THAT(std::string(table.status().message()), HasSubstr("tokens.json"));
  return std::string(table.status().message());
}

std::string OneTenant(const std::string& fields) {
  return absl::StrCat(R"({"tenants": [{"name": "a", )", fields, "}]}");
}

std::string OneToken(const std::string& fields) {
  return OneTenant(absl::StrCat(R"("tokens": [{)", fields, "}]"));
}

TEST(TokenTableTest, TokenIsFoundByItsHashOrItself) {
  for (const std::string& entry : {absl::StrCat(R"("sha256": ")", kTokenHash, "\""),
                                   absl::StrCat(R"("token": ")", kToken, "\"")}) {
    const auto table = TokenTable::Parse(OneToken(entry), "tokens.json");
    ASSERT_TRUE(table.ok()) << table.status();
    ASSERT_NE(table->Find(kToken), nullptr);
    EXPECT_EQ(table->Find(kToken)->tenant->name, "a");
    EXPECT_EQ(table->Find(kTokenHash), nullptr);
    EXPECT_EQ(table->Find(""), nullptr);
    EXPECT_EQ(table->Find(std::string(kToken) + "x"), nullptr);
  }
}

// The file holds the hash of "test", which everyone can guess.
TEST(TokenTableTest, TextThatIsNoTokenIsUnknownWhateverTheFileHolds) {
  const auto table = TokenTable::Parse(
      OneToken(R"("sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")"),
      "tokens.json");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Find("test"), nullptr);
}

TEST(TokenTableTest, EveryTokenHasItsTenantAndRights) {
  const auto table = TokenTable::Parse(R"({"tenants": [
      {"name": "search", "weight": 2.5, "max_live_requests": 8, "tokens_per_minute": 600,
       "tokens": [{"token": "search-old-000000000000"},
                  {"token": "search-new-000000000000", "rights": ["generate"]}]},
      {"name": "operations", "tokens": [{"token": "operations-000000000000",
                                         "rights": ["read", "admin"]}]}]})",
                                       "tokens.json");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->n_tokens(), 3u);
  const TokenGrant* old = table->Find("search-old-000000000000");
  const TokenGrant* renewed = table->Find("search-new-000000000000");
  const TokenGrant* operations = table->Find("operations-000000000000");
  ASSERT_TRUE(old != nullptr && renewed != nullptr && operations != nullptr);
  EXPECT_EQ(old->tenant, renewed->tenant);
  EXPECT_EQ(old->tenant->weight, 2.5);
  EXPECT_EQ(old->tenant->max_live_requests, 8);
  EXPECT_EQ(old->tenant->tokens_per_minute, 600);
  EXPECT_EQ(operations->tenant->weight, 1);
  EXPECT_EQ(operations->tenant->max_live_requests, std::nullopt);
  EXPECT_TRUE(old->Allows(Right::kGenerate) && old->Allows(Right::kRead));
  EXPECT_FALSE(old->Allows(Right::kAdmin));
  EXPECT_TRUE(renewed->Allows(Right::kGenerate));
  EXPECT_FALSE(renewed->Allows(Right::kRead));
  EXPECT_TRUE(operations->Allows(Right::kRead) && operations->Allows(Right::kAdmin));
  EXPECT_FALSE(operations->Allows(Right::kGenerate));
}

TEST(TokenTableTest, BadFieldsAreNamed) {
  const std::string token = absl::StrCat(R"("token": ")", kToken, "\"");
  const std::string tokens = absl::StrCat(R"("tokens": [{)", token, "}]");
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"[]", "expected a JSON object"},
      {"{}", "tenants: expected a list"},
      {R"({"tenants": []})", "tenants: expected a list"},
      {R"({"tenants": [1]})", "tenants[0]: expected an object"},
      {R"({"tenant": []})", "unknown field \"tenant\", expected tenants"},
      {R"({"tenants": [{"name": "a"}]})", "tokens: expected a list"},
      {R"({"tenants": [{"tokens": []}]})", "name: missing"},
      {OneTenant(tokens + R"(, "weigth": 1)"), "unknown field \"weigth\""},
      {OneTenant(tokens + R"(, "weight": 0)"), "weight: 0"},
      {OneTenant(tokens + R"(, "weight": -1)"), "weight: -1"},
      {OneTenant(tokens + R"(, "weight": 1e99)"), "weight"},
      {OneTenant(tokens + R"(, "weight": "1")"), "weight: \"1\""},
      {OneTenant(tokens + R"(, "max_live_requests": 0)"), "max_live_requests: 0"},
      {OneTenant(tokens + R"(, "tokens_per_minute": 1.5)"), "tokens_per_minute: 1.5"},
      {OneTenant(tokens + R"(, "weight": 1, "weight": 2)"), "appears twice"},
      {OneTenant(R"("tokens": [7])"), "tokens[0]: expected an object"},
      {OneToken(""), "expected one of sha256 and token"},
      {OneToken(token + ", \"sha256\": \"\""), "expected one of sha256 and token"},
      {OneToken(token + R"(, "rights": [])"), "rights: expected a list"},
      {OneToken(token + R"(, "rights": ["root"])"), "rights: [\"root\"]"},
      {OneToken(token + R"(, "rights": ["read", "read"])"), "each once"},
      {OneToken(token + R"(, "right": ["read"])"), "unknown field \"right\""},
      {OneToken(R"("sha256": "12")"), "sha256: expected 64 hexadecimal digits"},
      {OneToken(absl::StrCat(R"("sha256": ")", std::string(64, 'x'), "\"")), "64 hexadecimal"},
      {OneToken(R"("sha256": 5)"), "64 hexadecimal"},
      {OneToken(R"("token": 5)"), "token: expected 20..256"},
      {OneToken(R"("token": "ten bytes.")"), "token: expected 20..256"},
      {std::string(100, '['), "nested"},
      {R"({"tenants": [[[[[[[[]]]]]]]]})", "nested"},
  };
  for (const auto& [json, part] : cases) EXPECT_THAT(Refusal(json), HasSubstr(part)) << json;
}

TEST(TokenTableTest, NamesArePlainAndDistinct) {
  const auto tenant = [](const std::string& name, const std::string& token) {
    return absl::StrCat(R"({"name": ")", name, R"(", "tokens": [{"token": ")", token, "\"}]}");
  };
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a\\nb"), std::string(65, 'a')}) {
    EXPECT_THAT(Refusal(absl::StrCat(R"({"tenants": [)", tenant(name, kToken), "]}")),
                HasSubstr("name"));
  }
  const std::string other = std::string(kToken) + "2";
  EXPECT_THAT(
      Refusal(absl::StrCat(R"({"tenants": [)", tenant("a", kToken), ",", tenant("a", other), "]}")),
      HasSubstr("tenants[1]: name: \"a\""));
}

TEST(TokenTableTest, SameTokenTwiceIsRefusedWithoutQuotingIt) {
  const std::string twice = OneTenant(absl::StrCat(R"("tokens": [{"token": ")", kToken,
                                                   R"("}, {"sha256": ")", kTokenHash, R"("}])"));
  EXPECT_THAT(Refusal(twice), HasSubstr("tokens[1]: is in the file already"));
  EXPECT_THAT(Refusal(twice), Not(HasSubstr(kToken)));
}

TEST(TokenTableTest, MessagesNeverQuoteTokens) {
  const std::string secret = "my secret, with spaces in it";
  EXPECT_THAT(Refusal(OneToken(absl::StrCat(R"("token": ")", secret, "\""))),
              Not(HasSubstr("secret")));
  EXPECT_THAT(Refusal(OneTenant(absl::StrCat(R"("tokens": ")", secret, "\""))),
              Not(HasSubstr("secret")));
}

TEST(TokenTableTest, SizesAreBounded) {
  EXPECT_THAT(Refusal(std::string(kMaxTokenTableBytes + 1, ' ')), HasSubstr("expected at most"));
  std::string tokens;
  for (size_t i = 0; i <= kMaxTokens; ++i) {
    absl::StrAppend(&tokens, i == 0 ? "" : ",", R"({"token": "token-number-)",
                    absl::Dec(i, absl::kZeroPad8), "\"}");
  }
  EXPECT_THAT(Refusal(OneTenant(absl::StrCat(R"("tokens": [)", tokens, "]"))),
              HasSubstr("tokens: expected a list of 1..4096"));
}

TEST(TokenTableTest, AFullTableFindsItsFirstAndLast) {
  std::string tokens;
  for (size_t i = 0; i < kMaxTokens; ++i) {
    absl::StrAppend(&tokens, i == 0 ? "" : ",", R"({"token": "token-number-)",
                    absl::Dec(i, absl::kZeroPad8), "\"}");
  }
  const auto table =
      TokenTable::Parse(OneTenant(absl::StrCat(R"("tokens": [)", tokens, "]")), "tokens.json");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_NE(table->Find("token-number-00000000"), nullptr);
  EXPECT_NE(table->Find("token-number-00004095"), nullptr);
  EXPECT_EQ(table->Find("token-number-00004096"), nullptr);
}

TEST(TokenTableTest, TokensAreOfBearersAlphabet) {
  EXPECT_TRUE(IsWellFormedToken("abcXYZ019-._~+/abcdef=="));
  EXPECT_TRUE(IsWellFormedToken(std::string(256, 'a')));
  for (const std::string& token :
       {std::string(19, 'a'), std::string(257, 'a'), std::string(20, '='), std::string(20, ' '),
        std::string("aaaaaaaaaaa=aaaaaaaaaa"), std::string("aaaaaaaaaaaaaaaaaaaaa\n"),
        std::string("aaaaaaaaaaaaaaaaaaaa\xc3\xa4")}) {
    EXPECT_FALSE(IsWellFormedToken(token)) << token;
  }
}

}  // namespace
}  // namespace lowkey

#include "server/hub/hub_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<HubSettings> Read(const std::map<std::string, std::string>& variables) {
  return ReadHubSettings([&](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  });
}

TEST(HubSettingsTest, DefaultsAreThoseOfHuggingFace) {
  const auto settings = Read({{"HOME", "/nowhere"}});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->endpoint, "https://huggingface.co");
  EXPECT_EQ(settings->cache, "/nowhere/.cache/huggingface/hub");
  EXPECT_EQ(settings->token, "");
  EXPECT_FALSE(settings->is_offline);
}

TEST(HubSettingsTest, TheNearestVariableNamesTheCache) {
  std::map<std::string, std::string> variables = {{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}};
  EXPECT_EQ(Read(variables)->cache, "/x/huggingface/hub");
  variables["HF_HOME"] = "/hf";
  EXPECT_EQ(Read(variables)->cache, "/hf/hub");
  variables["HF_HUB_CACHE"] = "/c";
  EXPECT_EQ(Read(variables)->cache, "/c");
  EXPECT_THAT(std::string(Read({}).status().message()), HasSubstr("HF_HOME: not set"));
}

TEST(HubSettingsTest, TheTokenComesFromTheEnvironmentOrAFile) {
  TempDirectory home;
  WriteFileOrDie(home.File("token"), "from_file\n");
  WriteFileOrDie(home.File("other"), "from_other");
  std::map<std::string, std::string> variables = {{"HF_HOME", home.path()}};
  EXPECT_EQ(Read(variables)->token, "from_file");
  variables["HF_TOKEN_PATH"] = home.File("other");
  EXPECT_EQ(Read(variables)->token, "from_other");
  variables["HF_TOKEN"] = " from_environment ";
  EXPECT_EQ(Read(variables)->token, "from_environment");
}

TEST(HubSettingsTest, ATokenCannotAddFieldsAndIsNotQuoted) {
  for (const std::string token : {"a\r\nHost: evil", "a b", "a\x01", "sécret"}) {
    const auto status = Read({{"HOME", "/h"}, {"HF_TOKEN", token}}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("HF_TOKEN: expected a token"));
    EXPECT_EQ(std::string(status.message()).find(token), std::string::npos);
  }
  TempDirectory home;
  WriteFileOrDie(home.File("token"), std::string(100'000, 'a'));
  EXPECT_FALSE(Read({{"HF_HOME", home.path()}}).ok());
}

TEST(HubSettingsTest, EndpointsAreUrls) {
  EXPECT_EQ(Read({{"HOME", "/h"}, {"HF_ENDPOINT", "https://mirror.example/x//"}})->endpoint,
            "https://mirror.example/x");
  for (const std::string endpoint : {"mirror.example", "ftp://mirror.example", "https://a@b"}) {
    EXPECT_THAT(std::string(Read({{"HOME", "/h"}, {"HF_ENDPOINT", endpoint}}).status().message()),
                HasSubstr("HF_ENDPOINT: "));
  }
}

TEST(HubSettingsTest, OfflineIsASwitch) {
  for (const std::string text : {"1", "true", "YES", "on"}) {
    EXPECT_TRUE(Read({{"HOME", "/h"}, {"HF_HUB_OFFLINE", text}})->is_offline);
  }
  EXPECT_FALSE(Read({{"HOME", "/h"}, {"HF_HUB_OFFLINE", "0"}})->is_offline);
}

}  // namespace
}  // namespace lowkey

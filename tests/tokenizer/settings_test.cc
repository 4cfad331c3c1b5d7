#include "tokenizer/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/temp_directory.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SettingsTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    WriteFileOrDie(directory_.File(name), text);
  }

  TempDirectory directory_;
};

TEST_F(SettingsTest, MissingFilesSayNothing) {
  const auto settings = LoadTokenizerSettings(directory_.path());
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->bos_token, std::nullopt);
  EXPECT_EQ(settings->add_bos_token, std::nullopt);
  EXPECT_EQ(settings->bos_id, std::nullopt);
  EXPECT_THAT(settings->eos_ids, IsEmpty());
}

TEST_F(SettingsTest, ReadsTokensAsStringsAndAsObjects) {
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "add_bos_token": false,
            "add_eos_token": true, "eos_token": null})");
  Write("special_tokens_map.json", R"({"bos_token": "<other>", "eos_token": "</s>"})");
  const auto settings = LoadTokenizerSettings(directory_.path());
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->bos_token, "<s>");
  EXPECT_EQ(settings->eos_token, "</s>");
  EXPECT_EQ(settings->add_bos_token, false);
  EXPECT_EQ(settings->add_eos_token, true);
}

TEST_F(SettingsTest, GenerationConfigWinsOverConfig) {
  Write("generation_config.json", R"({"eos_token_id": [7, 9]})");
  Write("config.json", R"({"bos_token_id": 1, "eos_token_id": 2})");
  const auto settings = LoadTokenizerSettings(directory_.path());
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->bos_id, 1);
  EXPECT_EQ(settings->bos_id_file, "config.json");
  EXPECT_THAT(settings->eos_ids, ElementsAre(7, 9));
  EXPECT_EQ(settings->eos_ids_file, "generation_config.json");
}

TEST_F(SettingsTest, ReadsASingleEosId) {
  Write("config.json", R"({"eos_token_id": 2})");
  EXPECT_THAT(LoadTokenizerSettings(directory_.path())->eos_ids, ElementsAre(2));
}

TEST_F(SettingsTest, NamesFileAndKeyOfAWrongType) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"eos_token_id": "2"})", "config.json: eos_token_id: \"2\", expected a token id from 0"},
      {R"({"eos_token_id": [1, 2.5]})", "config.json: eos_token_id[1]: 2.5, expected a token id"},
      {R"({"eos_token_id": -1})", "config.json: eos_token_id: -1, expected a token id from 0"},
      {R"({"bos_token_id": 4294967296})", "config.json: bos_token_id: 4294967296"},
      {R"({"bos_token_id": 18446744073709551615})", "bos_token_id: 18446744073709551615"},
      {R"({"bos_token_id": true})", "config.json: bos_token_id: true"},
      {R"([])", "config.json: array, expected a JSON object"},
      {R"({"bos_token_id": 1)", "config.json: not JSON"},
      {"", "config.json: not JSON"},
      {"\xFF\xFE", "config.json: not JSON"},
  };
  for (const auto& [text, message] : cases) {
    Write("config.json", text);
    EXPECT_THAT(LoadTokenizerSettings(directory_.path()), IsInvalid(message)) << text;
  }
}

TEST_F(SettingsTest, NamesWrongTokenAndFlag) {
  Write("tokenizer_config.json", R"({"bos_token": 3})");
  EXPECT_THAT(LoadTokenizerSettings(directory_.path()),
              IsInvalid("tokenizer_config.json: bos_token: 3, expected a string"));
  Write("tokenizer_config.json", R"({"bos_token": {"content": 3}})");
  EXPECT_THAT(LoadTokenizerSettings(directory_.path()),
              IsInvalid("bos_token.content: 3, expected a string"));
  Write("tokenizer_config.json", R"({"add_bos_token": "yes"})");
  EXPECT_THAT(LoadTokenizerSettings(directory_.path()),
              IsInvalid("add_bos_token: \"yes\", expected true"));
}

TEST_F(SettingsTest, RejectsTooManyEosIds) {
  std::string list = "1";
  for (size_t i = 0; i < kMaxEosIds; ++i) list += ",1";
  Write("config.json", R"({"eos_token_id": [)" + list + "]}");
  EXPECT_THAT(LoadTokenizerSettings(directory_.path()),
              IsInvalid("an array of 65, expected at most 64 ids"));
}

TEST_F(SettingsTest, RejectsDeepNesting) {
  Write("config.json", R"({"x":)" + std::string(200000, '[') + std::string(200000, ']') + "}");
  EXPECT_THAT(LoadTokenizerSettings(directory_.path()),
              IsInvalid("config.json: nested deeper than 64 levels"));
}

}  // namespace
}  // namespace lowkey

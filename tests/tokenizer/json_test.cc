#include "tokenizer/json.h"

#include <gtest/gtest.h>

#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

TEST(ParseJsonObjectTest, RejectsWhatIsNoObject) {
  EXPECT_THAT(ParseJsonObject("", "f"), IsInvalid("f: not JSON, expected a JSON object"));
  EXPECT_THAT(ParseJsonObject("{\"a\": \"\xFF\"}", "f"), IsInvalid("f: not JSON"));
  EXPECT_THAT(ParseJsonObject("[1]", "f"), IsInvalid("f: array, expected a JSON object"));
}

TEST(ParseJsonObjectTest, LimitsDepthBeforeParsing) {
  const auto nested = [](int depth) {
    return "{\"a\":" + std::string(depth - 1, '[') + std::string(depth - 1, ']') + "}";
  };
  EXPECT_THAT(ParseJsonObject(nested(kMaxJsonDepth), "f"), IsOk());
  EXPECT_THAT(ParseJsonObject(nested(kMaxJsonDepth + 1), "f"),
              IsInvalid("f: nested 65 levels deep, expected at most 64"));
  EXPECT_THAT(ParseJsonObject(std::string(1 << 20, '['), "f"), IsInvalid("nested 1048576"));
  EXPECT_THAT(ParseJsonObject("{\"a\":\"\\\"" + std::string(100, '[') + "\"}", "f"), IsOk());
}

TEST(JsonValueTest, MessagesShowTheWay) {
  const auto json = ParseJsonObject(R"({"a": {"b": [1, "x", true, -1, 4294967296]}})", "f");
  ASSERT_THAT(json, IsOk());
  const JsonValue root(*json, "f: ");
  EXPECT_THAT(root.Get("z"), IsInvalid("f: object, expected an object with z"));
  EXPECT_THAT(root.Items(), IsInvalid("f: object, expected an array"));
  const auto items = root.Find("a")->Find("b")->Items();
  ASSERT_THAT(items, IsOk());
  EXPECT_EQ(*(*items)[0].Id(), 1);
  EXPECT_EQ(*(*items)[1].Text(), "x");
  EXPECT_TRUE(*(*items)[2].Flag());
  EXPECT_THAT((*items)[1].Id(), IsInvalid("f: a.b[1]: \"x\", expected a token id from 0"));
  EXPECT_THAT((*items)[3].Id(), IsInvalid("f: a.b[3]: -1"));
  EXPECT_THAT((*items)[4].Id(), IsInvalid("f: a.b[4]: 4294967296"));
  EXPECT_THAT((*items)[0].Text(), IsInvalid("f: a.b[0]: 1, expected a string"));
  EXPECT_THAT((*items)[0].Flag(), IsInvalid("expected true or false"));
  EXPECT_EQ((*items)[0].Find("z"), std::nullopt);
  EXPECT_THAT((*items)[1].Unsupported(),
              FailsWith(absl::StatusCode::kUnimplemented, "f: a.b[1]: \"x\" is not supported"));
}

TEST(JsonValueTest, AMissingFlagHasADefault) {
  const auto json = ParseJsonObject(R"({"yes": true, "null": null, "text": "x"})", "f");
  const JsonValue root(*json, "f: ");
  EXPECT_TRUE(*root.FlagOr("yes", false));
  EXPECT_TRUE(*root.FlagOr("null", true));
  EXPECT_FALSE(*root.FlagOr("missing", false));
  EXPECT_THAT(root.FlagOr("text", false), IsInvalid("f: text: \"x\""));
  EXPECT_THAT(root.Flag("null"), IsInvalid("expected an object with null"));
  EXPECT_EQ(*root.Text("text"), "x");
}

TEST(JsonValueTest, CutsLongValuesInMessages) {
  const nlohmann::json value = std::string(1000, 'x');
  EXPECT_LT(JsonValue(value, "f").Error("y").message().size(), 100u);
}

}  // namespace
}  // namespace lowkey

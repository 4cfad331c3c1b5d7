#include "engine/base/json.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/peak_memory.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::StartsWith;

std::string ParseError(const std::string& text, int max_depth = 4) {
  const auto value = ParseJsonObject(text, "f.json", max_depth);
  EXPECT_FALSE(value.ok()) << text;
  EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(value.status().message());
}

TEST(ParseJsonObject, ReadsAnObject) {
  const auto value = ParseJsonObject(R"( {"a": [1, {"b": null}], "c": "d"} )", "f.json", 3);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ((*value)["a"][0], 1);
}

TEST(ParseJsonObject, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "{}}", "{\"a\": }", "{\"a\": nan}", "{'a': 1}", "{\"a\": 1,}",
                           "{\"a\": \"\xff\"}", "{\"a\": 1e999}", "// x\n{}", "\xef\xbb"}) {
    EXPECT_THAT(ParseError(text), StartsWith("f.json: not JSON at ")) << text;
  }
}

TEST(ParseJsonObject, SaysWhereTheTextStopsBeingJson) {
  EXPECT_EQ(
      ParseError("{\n \"a\": [1 2]}"),
      "f.json: not JSON at line 2, column 10: while parsing array - unexpected number literal; "
      "expected ']'");
  EXPECT_EQ(ParseError(""),
            "f.json: not JSON at line 1, column 1: while parsing value - unexpected end of input; "
            "expected '[', '{', or a literal");
  EXPECT_EQ(ParseError("{\"a\": 1e999}"), "f.json: not JSON at byte 11: number overflow");
}

TEST(ParseJsonObject, ErrorsDoNotRepeatTheText) {
  const std::string long_text = "{\"a\": \"" + std::string(5000, 'x');
  for (const std::string& text : {long_text + "\xff\"}", long_text + "\n\"}", long_text}) {
    const std::string error = ParseError(text);
    EXPECT_LT(error.size(), 200u) << error;
    EXPECT_EQ(error.find('\xff'), std::string::npos);
  }
}

TEST(Described, SaysWhatAValueIsWithoutItsMembers) {
  EXPECT_EQ(Described(json::array()), "an array of 0");
  EXPECT_EQ(Described(json::array({1, "a", nullptr})), "an array of 3");
  EXPECT_EQ(Described(json::object({{"a", 1}})), "an object");
  EXPECT_EQ(Described("a"), "\"a\"");
  EXPECT_EQ(Described(nullptr), "null");
}

TEST(ParseJsonObject, RefusesOtherValuesThanObjects) {
  EXPECT_EQ(ParseError("[]"), "f.json: array, expected a JSON object");
  EXPECT_EQ(ParseError("null"), "f.json: null, expected a JSON object");
  EXPECT_EQ(ParseError("3"), "f.json: number, expected a JSON object");
}

TEST(ParseJsonObject, RefusesRepeatedKeysAtAnyDepthButNotInSiblings) {
  EXPECT_EQ(ParseError(R"({"a": 1, "b": 2, "a": 3})"), "f.json: key \"a\" appears twice");
  EXPECT_EQ(ParseError(R"({"x": [{"a": 1, "a": 1}]})"), "f.json: key \"a\" appears twice");
  EXPECT_TRUE(ParseJsonObject(R"({"x": {"a": 1}, "y": {"a": 1}, "a": 2})", "f", 4).ok());
}

TEST(ParseJsonObject, ValuesArePaidForBeforeTheyAreMade) {
  for (const char* item : {"0,", "\"\",", "[],", "{\"\":0},"}) {
    std::string text = "{\"a\":[";
    for (int i = 0; i < 20'000; ++i) text += item;
    text.back() = ']';
    text += "}";
    LoadAccount enough(size_t{8} << 20), too_little(size_t{256} << 10);
    EXPECT_TRUE(ParseJsonObject(text, "f.json", enough).ok()) << item;
    absl::Status status;
    const size_t peak =
        PeakBytes([&] { status = ParseJsonObject(text, "f.json", too_little).status(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(),
              "f.json: takes over 262144 bytes of memory to read, with the files before it; "
              "expected at most that");
    EXPECT_LE(peak, size_t{1} << 20) << item;
  }
}

TEST(ParseJsonObject, ManyBracketsTakeLittle) {
  const std::string brackets(size_t{16} << 20, '[');
  for (const std::string& text : {brackets, "{\"a\":" + brackets}) {
    const size_t peak = PeakBytes([&] { EXPECT_FALSE(ParseJsonObject(text, "f.json").ok()); });
    EXPECT_LE(peak, size_t{1} << 20);
  }
}

TEST(ParseJsonObject, BoundsTheDepth) {
  EXPECT_TRUE(ParseJsonObject(R"({"a": [[{}]]})", "f.json", 4).ok());
  EXPECT_EQ(ParseError(R"({"a": [[{}]]})", 3), "f.json: nested deeper than 3 levels");
  EXPECT_EQ(ParseError(absl::StrCat("{\"a\":", std::string(1 << 20, '['))),
            "f.json: nested deeper than 4 levels");
  const std::string open(kMaxJsonDepth - 1, '['), close(kMaxJsonDepth - 1, ']');
  EXPECT_TRUE(ParseJsonObject("{\"a\":" + open + close + "}", "f.json").ok());
  EXPECT_EQ(ParseError("{\"a\":[" + open + close + "]}", kMaxJsonDepth),
            "f.json: nested deeper than 64 levels");
  EXPECT_TRUE(ParseJsonObject("{\"a\":\"\\\"" + std::string(100, '[') + "\"}", "f").ok());
}

class JsonFieldsTest : public ::testing::Test {
 protected:
  const json object_ = json::parse(R"({
      "int": 5, "negative": -1, "huge": 18446744073709551615, "half": 0.5, "null": null,
      "flag": true, "text": "abc", "object": {"inner": 7}, "list": [1, 2]})");
  const JsonFields fields_{object_, "f.json"};

  template <typename T>
  std::string Message(const absl::StatusOr<T>& result) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  }
};

TEST_F(JsonFieldsTest, AbsentAndNullAreNoValue) {
  for (const char* key : {"absent", "null"}) {
    EXPECT_EQ(*fields_.Int(key, {0, 9}), std::nullopt);
    EXPECT_EQ(*fields_.Number(key, {0, 9}), std::nullopt);
    EXPECT_EQ(*fields_.Bool(key), std::nullopt);
    EXPECT_EQ(*fields_.String(key), std::nullopt);
    EXPECT_FALSE(fields_.Object(key)->has_value());
    EXPECT_EQ(fields_.Find(key), nullptr);
  }
  EXPECT_TRUE(fields_.Has("null"));
  EXPECT_FALSE(fields_.Has("absent"));
}

TEST_F(JsonFieldsTest, ValuesOfTheirTypes) {
  EXPECT_EQ(*fields_.Int("int", {5, 5}), 5);
  EXPECT_EQ(*fields_.Int("negative", {-1, 0}), -1);
  EXPECT_EQ(*fields_.Number("int", {0, 9}), 5.0);
  EXPECT_EQ(*fields_.Number("half", {0, 9}), 0.5);
  EXPECT_EQ(*fields_.Bool("flag"), true);
  EXPECT_EQ(*fields_.String("text"), "abc");
  EXPECT_EQ(*(*fields_.Object("object"))->Int("inner", {0, 9}), 7);
}

TEST_F(JsonFieldsTest, OutOfRangeNamesValueAndRange) {
  EXPECT_EQ(Message(fields_.Int("negative", {1, 65536})),
            "f.json: negative: -1, expected 1..65536");
  EXPECT_EQ(Message(fields_.Int("huge", {1, INT64_MAX})),
            "f.json: huge: 18446744073709551615, expected 1..9223372036854775807");
  EXPECT_EQ(Message(fields_.Number("half", {1, 2})),
            "f.json: half: 0.5, expected a number in 1..2");
}

TEST_F(JsonFieldsTest, OtherTypesAreNamed) {
  EXPECT_EQ(Message(fields_.Int("half", {0, 9})), "f.json: half: 0.5, expected 0..9");
  EXPECT_EQ(Message(fields_.Int("text", {0, 9})), "f.json: text: \"abc\", expected 0..9");
  EXPECT_EQ(Message(fields_.Number("flag", {0, 9})),
            "f.json: flag: true, expected a number in 0..9");
  EXPECT_EQ(Message(fields_.Bool("int")), "f.json: int: 5, expected true or false");
  EXPECT_EQ(Message(fields_.String("list")), "f.json: list: [1,2], expected a string");
  EXPECT_EQ(Message(fields_.Object("list")), "f.json: list: [1,2], expected an object or null");
}

TEST_F(JsonFieldsTest, RequiredFieldsMustBeThere) {
  EXPECT_EQ(*fields_.RequiredInt("int", {0, 9}), 5);
  EXPECT_EQ(Message(fields_.RequiredInt("absent", {1, 9})),
            "f.json: absent: missing, expected 1..9");
  EXPECT_EQ(Message(fields_.RequiredInt("null", {1, 9})), "f.json: null: null, expected 1..9");
  EXPECT_EQ(Message(fields_.RequiredNumber("absent", {1, 9})),
            "f.json: absent: missing, expected a number in 1..9");
}

TEST_F(JsonFieldsTest, InnerObjectsSayWhereTheyAre) {
  const auto inner = fields_.Object("object");
  EXPECT_EQ(Message((*inner)->Int("inner", {0, 1})), "f.json: object: inner: 7, expected 0..1");
}

TEST(JsonValueTest, MessagesShowThePath) {
  const auto json = ParseJsonObject(R"({"a": {"b": [1, "x", true, -1, 4294967296]}})", "f");
  ASSERT_THAT(json, IsOk());
  const JsonValue root(*json, "f: ");
  EXPECT_THAT(root.Get("z"), IsInvalid("f: an object, expected an object with z"));
  EXPECT_THAT(root.Items(), IsInvalid("f: an object, expected an array"));
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

TEST(ShortText, CutsWhatIsLong) {
  EXPECT_EQ(ShortText(json("abc")), "\"abc\"");
  EXPECT_LE(ShortText(json(std::string(1000, 'x'))).size(), 83u);
  EXPECT_EQ(ShortText(json(std::vector<int>(100))), "[...]");
  EXPECT_EQ(ShortText(json("\xff")), "\"\\ufffd\"");
}

}  // namespace
}  // namespace lowkey

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/flags.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr Flag kFlags[] = {{"x", "X", "", "a value"}, {"json", "", "", "JSON", FlagKind::kSwitch}};

FlagValues Parsed(const std::vector<std::string>& arguments, const char* variable = nullptr) {
  CommandSpec spec;
  spec.name = "try";
  spec.groups = {{"All", kFlags}};
  FlagSources sources;
  sources.environment = [variable](const std::string&) -> std::optional<std::string> {
    if (variable == nullptr) return std::nullopt;
    return variable;
  };
  auto values = ParseFlags(spec, arguments, {}, sources);
  EXPECT_TRUE(values.ok()) << values.status();
  return *std::move(values);
}

FlagValues With(const std::string& text) { return Parsed({"--x", text}); }

TEST(ValuesTest, FlagsThatNothingReadsAreRefusedOnTheCommandLineAlone) {
  EXPECT_TRUE(Parsed({"--x", "1"}).RequireNone({"json"}, "none").ok());
  const absl::Status refused = Parsed({"--json"}).RequireNone({"x", "json"}, "none here");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--json"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("none here"));
  EXPECT_TRUE(Parsed({}, "true").RequireNone({"json"}, "none").ok());
}

TEST(ValuesTest, IntegersAreWholeAndInRange) {
  EXPECT_EQ(**With("12").Int("x", 0, 12), 12);
  EXPECT_EQ(**With("-3").Int("x", -5, 5), -3);
  for (const char* bad : {"13", "-1", "1.5", "", "1x", "99999999999999999999"}) {
    const auto value = With(bad).Int("x", 0, 12);
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(value.status().message()), HasSubstr("an integer in 0..12"));
  }
}

TEST(ValuesTest, NumbersAreFinite) {
  EXPECT_DOUBLE_EQ(**With("-0.5e1").Number("x"), -5.0);
  for (const char* bad : {"nan", "inf", "1e999", "one", ""}) {
    EXPECT_FALSE(With(bad).Number("x").ok()) << bad;
  }
}

TEST(ValuesTest, SeedsReachTheLargest) {
  EXPECT_EQ(**With("18446744073709551615").Seed("x"), 18446744073709551615u);
  EXPECT_FALSE(With("18446744073709551616").Seed("x").ok());
  EXPECT_FALSE(With("-1").Seed("x").ok());
}

TEST(ValuesTest, BytesTakeUnits) {
  EXPECT_EQ(**With("1048576").Bytes("x"), 1 << 20);
  EXPECT_EQ(**With("512M").Bytes("x"), int64_t{512} << 20);
  EXPECT_EQ(**With("2g").Bytes("x"), int64_t{2} << 30);
  EXPECT_EQ(**With("1.5KiB").Bytes("x"), 1536);
  EXPECT_EQ(**With("7b").Bytes("x"), 7);
  for (const char* bad : {"", "M", "-1", "5X", "1 G", "1e3", "99999999T", "1.2.3"}) {
    EXPECT_FALSE(With(bad).Bytes("x").ok()) << bad;
  }
}

TEST(ValuesTest, TimesTakeUnits) {
  EXPECT_DOUBLE_EQ(**With("30").Seconds("x"), 30.0);
  EXPECT_DOUBLE_EQ(**With("500ms").Seconds("x"), 0.5);
  EXPECT_DOUBLE_EQ(**With("2m").Seconds("x"), 120.0);
  for (const char* bad : {"", "s", "-3s", "25h", "3 days"}) {
    EXPECT_FALSE(With(bad).Seconds("x").ok()) << bad;
  }
}

TEST(ValuesTest, ReadersSetTheirTargets) {
  int32_t number = 1;
  std::optional<int32_t> optional_number;
  EXPECT_TRUE(With("12").ReadInt("x", {0, 12}, number).ok());
  EXPECT_TRUE(With("11").ReadInt("x", {}, optional_number).ok());
  EXPECT_EQ(number, 12);
  EXPECT_EQ(optional_number, 11);
  float real = 1;
  EXPECT_TRUE(With("0.5").ReadNumber("x", real).ok());
  EXPECT_EQ(real, 0.5f);
  absl::Duration time;
  EXPECT_TRUE(With("500ms").ReadSeconds("x", time).ok());
  EXPECT_EQ(time, absl::Milliseconds(500));
}

TEST(ValuesTest, ReadersLeaveTheirTargetsWithoutAValue) {
  int32_t number = 1;
  std::optional<int32_t> optional_number;
  EXPECT_TRUE(With("2").ReadInt("json", {}, number).ok());
  EXPECT_TRUE(With("2").ReadInt("json", {}, optional_number).ok());
  EXPECT_EQ(With("13").ReadInt("x", {0, 12}, number).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(With("13").ReadInt("x", {0, 12}, optional_number).ok());
  EXPECT_EQ(number, 1);
  EXPECT_EQ(optional_number, std::nullopt);
}

TEST(ValuesTest, BiasesAreIdsAndNumbers) {
  EXPECT_THAT(*With("5:-100,17:2.5").IdBiases("x"), ElementsAre(Pair(5, -100.0f), Pair(17, 2.5f)));
  for (const char* bad : {"5", "5:x", ":1", "x:1", "5:1:2"}) {
    EXPECT_FALSE(With(bad).IdBiases("x").ok()) << bad;
  }
}

TEST(ValuesTest, TooManyBiasesAreRefused) {
  std::string text;
  for (int i = 0; i < 1025; ++i) text += std::to_string(i) + ":1,";
  EXPECT_FALSE(With(text).IdBiases("x").ok());
}

TEST(ValuesTest, AbsentFlagHasNoValue) {
  EXPECT_EQ(With("1").Text("json"), "");
  EXPECT_FALSE(With("1").Switch("json"));
  EXPECT_FALSE(With("1").Has("json"));
}

}  // namespace
}  // namespace lowkey

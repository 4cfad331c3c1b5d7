#include "server/request/trace_context.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c", kParent[] = "b7ad6b7169203331";

std::string Parent(const std::string& flags = "01", const std::string& version = "00") {
  return absl::StrCat(version, "-", kTrace, "-", kParent, "-", flags);
}

TEST(TraceParentTest, ReadsIdsAndTheSampledFlag) {
  const auto context = ParseTraceParent(Parent());
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(HexOf(context->trace_id), kTrace);
  EXPECT_EQ(HexOf(context->parent_id), kParent);
  EXPECT_TRUE(context->is_sampled);
  EXPECT_EQ(context->state, "");
  EXPECT_FALSE(ParseTraceParent(Parent("00"))->is_sampled);
  EXPECT_FALSE(ParseTraceParent(Parent("fe"))->is_sampled);
  EXPECT_TRUE(ParseTraceParent(Parent("ff"))->is_sampled);
}

TEST(TraceParentTest, LaterVersionsMayAddFields) {
  EXPECT_TRUE(ParseTraceParent(Parent("01", "01")).has_value());
  EXPECT_TRUE(ParseTraceParent(Parent("01", "cc") + "-what-the-future-brings").has_value());
  EXPECT_TRUE(ParseTraceParent(Parent("01", "fe") + "-").has_value());
  EXPECT_FALSE(ParseTraceParent(Parent("01", "cc") + ".more").has_value());
}

TEST(TraceParentTest, RefusesEverythingElse) {
  for (const std::string& value :
       {std::string(), std::string("00"), Parent("01", "ff"), Parent() + "-more", Parent() + " ",
        " " + Parent(), Parent("1"), Parent("0x"), Parent("0A"), Parent("01", "0"),
        Parent("01", "0X"), absl::StrCat("00-00000000000000000000000000000000-", kParent, "-01"),
        absl::StrCat("00-", kTrace, "-0000000000000000-01"),
        absl::StrCat("00-0AF7651916CD43DD8448EB211C80319C-", kParent, "-01"),
        absl::StrCat("00-", kTrace, "-B7AD6B7169203331-01"),
        absl::StrCat("00_", kTrace, "-", kParent, "-01"),
        absl::StrCat("00-", kTrace, "_", kParent, "-01"),
        absl::StrCat("00-", kTrace, "-", kParent, "_01")}) {
    EXPECT_FALSE(ParseTraceParent(value).has_value()) << value;
  }
}

TEST(TraceParentTest, EveryOtherByteAtEveryPlaceIsRefusedOrRead) {
  const std::string good = Parent();
  for (size_t i = 0; i < good.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string value = good;
      value[i] = static_cast<char>(byte);
      const auto context = ParseTraceParent(value);
      const bool is_hex = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
      const bool is_dash_place = i == 2 || i == 35 || i == 52;
      EXPECT_EQ(context.has_value(), is_dash_place ? byte == '-' : is_hex) << i << ": " << byte;
    }
    EXPECT_FALSE(ParseTraceParent(good.substr(0, i)).has_value());
  }
}

TEST(TraceStateTest, MembersAreKeptInOrderWithoutBlanksAroundThem) {
  EXPECT_EQ(ParseTraceState("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
  EXPECT_EQ(ParseTraceState(" a=1 ,\t b=2 , ,c= 3"), "a=1,b=2,c= 3");
  EXPECT_EQ(ParseTraceState("tenant@system=x"), "tenant@system=x");
  EXPECT_EQ(ParseTraceState("0digit=x"), "0digit=x");
  EXPECT_EQ(ParseTraceState(""), "");
}

TEST(TraceStateTest, RefusesWhatIsNoList) {
  for (const std::string& value :
       {std::string("a"), std::string("=1"), std::string("a="), std::string("A=1"),
        std::string("a b=1"), std::string("a=1=2"), std::string("a=1,a=2"), std::string("a=\t"),
        std::string("a=\x7f"), std::string("a=\xc3\xa9"), std::string("a=1\0", 4),
        std::string("_a=1"), std::string(257, 'a') + "=1", "a=" + std::string(257, 'x')}) {
    EXPECT_FALSE(ParseTraceState(value).has_value()) << value;
  }
}

TEST(TraceStateTest, RefusesMoreThanItsLimits) {
  std::string members;
  for (size_t i = 0; i < kMaxTraceStateMembers; ++i) absl::StrAppend(&members, "k", i, "=v,");
  EXPECT_TRUE(ParseTraceState(members).has_value());
  EXPECT_FALSE(ParseTraceState(members + "one=more").has_value());
  const std::string half = "a=" + std::string(253, 'x') + ",b=" + std::string(254, 'x');
  EXPECT_EQ(ParseTraceState(half).value_or("").size(), kMaxTraceStateBytes);
  EXPECT_FALSE(ParseTraceState(half + "x").has_value());
  EXPECT_FALSE(ParseTraceState(std::string(1 << 20, ',')).has_value());
}

}  // namespace
}  // namespace lowkey

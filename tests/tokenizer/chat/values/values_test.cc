// Arena, operators, formatting and JSON: what goldens do not reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/chat/render.h"
#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/chat/values/operators.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {
namespace {

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

TEST(ArenaTest, RefusesMoreStepsThanItsLimit) {
  Arena arena({.max_steps = 2});
  EXPECT_TRUE(arena.ChargeStep().ok());
  EXPECT_TRUE(arena.ChargeStep().ok());
  EXPECT_THAT(arena.ChargeStep(), FailsWith(kExhausted, "more than 2 steps"));
}

TEST(ArenaTest, RefusesMoreBytesThanItsLimitWithoutOverflow) {
  Arena arena({.max_work_bytes = 100});
  EXPECT_TRUE(arena.ChargeBytes(60).ok());
  EXPECT_THAT(arena.ChargeBytes(41), FailsWith(kExhausted, "more than 100 bytes"));
  EXPECT_THAT(arena.ChargeBytes(SIZE_MAX), FailsWith(kExhausted, "more than 100 bytes"));
  EXPECT_TRUE(arena.ChargeBytes(40).ok());
}

TEST(ArenaTest, RefusesListsNestedTooDeep) {
  Arena arena({.max_value_depth = 3});
  Value list = *arena.MakeList({});
  list = *arena.MakeList({list});
  list = *arena.MakeList({list});
  EXPECT_THAT(arena.MakeList({list}), FailsWith(kExhausted, "nested 4 deep"));
}

TEST(OperatorsTest, RepeatingCannotBeMadeToAllocate) {
  EXPECT_THAT(Render("{{ 'ab' * 999999999999 }}"), FailsWith(kExhausted, "line 1"));
  EXPECT_THAT(Render("{{ [1] * 9223372036854775807 }}"), FailsWith(kExhausted, "line 1"));
  EXPECT_EQ(Render("{{ '' * 9223372036854775807 }}")->bytes(), "");
}

TEST(OperatorsTest, IntegersPast64BitsAreErrors) {
  for (const char* expression :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "3037000500 ** 2", "2 ** 999",
        "-(-9223372036854775807 - 1)", "(-9223372036854775807 - 1) // -1"}) {
    EXPECT_THAT(Render(std::string("{{ ") + expression + " }}"), IsInvalid("over 64 bits"))
        << expression;
  }
  EXPECT_EQ(Render("{{ (-9223372036854775807 - 1) % -1 }}")->bytes(), "0");
  EXPECT_EQ(Render("{{ (-1) ** 9223372036854775807 }}")->bytes(), "-1");
}

TEST(OperatorsTest, ExtremeSliceBoundsAreClamped) {
  EXPECT_EQ(Render("{{ 'abc'[-9223372036854775807:9223372036854775807] }}")->bytes(), "abc");
  EXPECT_EQ(Render("{{ 'abc'[::9223372036854775807] }}")->bytes(), "a");
  EXPECT_EQ(Render("{{ 'abc'[::-9223372036854775807] }}")->bytes(), "c");
}

TEST(OperatorsTest, ComparingListsThatShareTheirPartsIsBounded) {
  // 2^60 leaves, were they visited.
  EXPECT_THAT(Render("{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}"
                     "{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
                     "{{ ns.a == ns.b }}"),
              FailsWith(kExhausted, "bytes worked on"));
}

TEST(FormatTest, PrintingListsThatShareTheirPartsIsBounded) {
  for (const char* output :
       {"{{ ns.a }}", "{{ ns.a | tojson }}", "{{ ns.a | tojson(indent=1) }}"}) {
    EXPECT_THAT(Render(std::string("{% set ns = namespace(a=[1]) %}{% for i in range(60) %}"
                                   "{% set ns.a = [ns.a, ns.a] %}{% endfor %}") +
                       output),
                FailsWith(kExhausted, "bytes worked on"));
  }
}

TEST(FormatTest, JsonOfUserStringsIsTheUsers) {
  EXPECT_EQ(RenderMarked("a{{ d | tojson }}", R"({"d": {"k": [1]}})"), "a{{\"k\": [1]}}");
  EXPECT_EQ(RenderMarked("{{ {'k': 1} | tojson }}"), "{\"k\": 1}");
  EXPECT_EQ(RenderMarked("{{ [s] }}", R"({"s": "x"})"), "{['x']}");
}

TEST(FromJsonTest, NamesTheByteThatIsMalformed) {
  Arena arena({});
  EXPECT_THAT(FromJson("[1, }", arena), IsInvalid("byte 5: malformed"));
  EXPECT_THAT(FromJson("", arena), IsInvalid("malformed"));
  EXPECT_THAT(FromJson("1 2", arena), IsInvalid("malformed"));
  EXPECT_THAT(FromJson("\"\xff\"", arena), IsInvalid("malformed"));
}

TEST(FromJsonTest, RefusesIntegersThatItWouldChange) {
  Arena arena({});
  EXPECT_THAT(FromJson("18446744073709551615", arena), IsInvalid("over 64 bits"));
  EXPECT_THAT(FromJson("99999999999999999999999", arena), IsInvalid("over 64 bits"));
  EXPECT_EQ(FromJson("-9223372036854775808", arena)->AsInt(), INT64_MIN);
}

TEST(FromJsonTest, RefusesDeepNestingWithoutRecursion) {
  Arena arena({});
  EXPECT_THAT(FromJson(std::string(100000, '['), arena), IsInvalid("nested over 64 deep"));
}

TEST(FromJsonTest, KeepsTheOrderOfKeysAndTheLastValue) {
  EXPECT_EQ(Render("{{ d | tojson }}", R"({"d": {"b": 1, "a": 2, "b": 3}})")->bytes(),
            R"({"b": 3, "a": 2})");
}

}  // namespace
}  // namespace lowkey::jinja

// Templates that try to hold more memory, or to do more work, than their limits allow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/peak_memory.h"
#include "tests/tokenizer/chat/render.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey::jinja {
namespace {

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;
constexpr size_t kMiB = size_t{1} << 20;

// Renders `source` with a limit of 8 MiB and returns its error; fails if it held much more than
// that: a growing vector or string holds three times its contents.
absl::Status RenderInLittleMemory(const std::string& source, const std::string& json = "{}") {
  const Limits limits{.max_work_bytes = 8 * kMiB};
  absl::Status status;
  const size_t peak = PeakBytes([&] { status = Render(source, json, limits).status(); });
  EXPECT_LE(peak, 24 * kMiB) << source;
  return status;
}

TEST(HostileTemplateTest, PartsOfATextAreChargedBeforeTheyAreHeld) {
  for (const char* cut : {".splitlines()", ".split('\\n')", ".rsplit('\\n')", ".split()",
                          ".count('\\n')", ".split('\\n', 3000000)"}) {
    EXPECT_THAT(RenderInLittleMemory(absl::StrCat("{% set x = ('a\\n' * 1700000)", cut, " %}")),
                FailsWith(kExhausted, "bytes worked on"));
  }
}

TEST(HostileTemplateTest, LinesAndMatchesAreNotHeld) {
  for (const char* filter :
       {"indent('')", "indent('') ", "replace('\\n', '')", "replace('', '')", "wordcount"}) {
    (void)RenderInLittleMemory(absl::StrCat("{% set x = ('\\n' * 3900000) | ", filter, " %}"));
  }
  (void)RenderInLittleMemory("{% set x = ('\\n' * 3900000)[3] %}");
}

TEST(HostileTemplateTest, TheUsersRangesAreCharged) {
  EXPECT_THAT(RenderInLittleMemory("{% set x = ('a' ~ u) * 1500000 %}", R"({"u": "b"})"),
              FailsWith(kExhausted, "bytes worked on"));
  EXPECT_THAT(
      RenderInLittleMemory("{% set x = (u * 1500000) | replace('', 'a') %}", R"({"u": "b"})"),
      FailsWith(kExhausted, "bytes worked on"));
}

TEST(HostileTemplateTest, EscapesAreCharged) {
  EXPECT_THAT(RenderInLittleMemory("{% set x = ('\\n\\u0001' * 1500000) | tojson %}"),
              FailsWith(kExhausted, "bytes worked on"));
}

// Each of these visits a large value in every round, and would take hours.
TEST(HostileTemplateTest, LargeArgumentsAreChargedInEveryRound) {
  for (const char* round :
       {"{{ 'a' | indent(x) }}", "{{ n[x] }}", "{{ d.get(x) }}", "{{ [1] | tojson(indent=x) }}",
        "{{ [1] | tojson(separators=(x, x)) }}", "{{ [1] | map(attribute=x) | first is none }}",
        "{{ {'a': 1} | tojson(separators=(',', x)) }}", "{% set e = {x: 1} %}"}) {
    EXPECT_THAT(RenderInLittleMemory(absl::StrCat(
                    "{% set x = ' ' * 3000000 %}{% set n = namespace() %}{% set d = {} %}"
                    "{% for i in range(100000) %}",
                    round, "{% endfor %}")),
                FailsWith(kExhausted, "bytes worked on"))
        << round;
  }
}

TEST(HostileTemplateTest, KeySeparatorsAreChargedForEveryKey) {
  std::string dict = "{";
  for (int i = 0; i < 2000; ++i) absl::StrAppend(&dict, "'k", i, "': 1, ");
  EXPECT_THAT(RenderInLittleMemory(absl::StrCat("{% set k = 'a' * 300000 %}{{ ", dict,
                                                "} | tojson(separators=(',', k)) }}")),
              FailsWith(kExhausted, "bytes worked on"));
}

TEST(HostileTemplateTest, NamesAreShort) {
  EXPECT_TRUE(Render(absl::StrCat("{{ ", std::string(256, 'a'), " is defined }}"), "{}").ok());
  EXPECT_THAT(Render(absl::StrCat("{{ ", std::string(257, 'a'), " }}"), "{}"),
              FailsWith(absl::StatusCode::kInvalidArgument, "name of 257 bytes"));
}

// Looking for the end of each beginning would take minutes.
TEST(HostileTemplateTest, ManyBeginningsWithinRawHaveOneEnd) {
  std::string begins;
  for (int i = 0; i < 500'000; ++i) begins += "{%";
  EXPECT_FALSE(Render(absl::StrCat("{% raw %}", begins, "%}"), "{}").ok());
}

// These do not look at all of their argument, and so end by the limit of steps.
TEST(HostileTemplateTest, LargeArgumentsAreNotCopied) {
  for (const char* round : {"{{ 'a'.startswith(t) }}", "{{ x is filter }}", "{{ x | int }}"}) {
    EXPECT_THAT(Render(absl::StrCat("{% set t = ('',) * 200000 %}{% set x = ' ' * 10000000 %}"
                                    "{% for i in range(1000) %}{% for i in range(1000) %}",
                                    round, "{% endfor %}{% endfor %}"),
                       "{}", {.max_steps = 400'000, .max_work_bytes = size_t{256} << 20}),
                FailsWith(kExhausted, "steps"))
        << round;
  }
}

TEST(HostileTemplateTest, MessagesCutNames) {
  for (const char* use : {"n[x] + 1", "[1] | map(x)", "[1] | select(x)"}) {
    const absl::Status status =
        Render(absl::StrCat("{% set n = namespace() %}{% set x = '\u00e9' * 1000000 %}{{ ", use,
                            " | list }}"))
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(status.message().size(), 400u);
  }
}

}  // namespace
}  // namespace lowkey::jinja

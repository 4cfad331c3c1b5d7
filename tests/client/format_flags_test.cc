#include "client/format_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using Kind = ResponseFormat::Kind;

absl::StatusOr<std::optional<ResponseFormat>> Read(const std::vector<std::string>& words) {
  CommandSpec spec;
  spec.name = "test";
  spec.groups = {{"Form", FormatFlags()}};
  FlagSources none;
  none.environment = [](const std::string&) { return std::nullopt; };
  const auto flags = ParseFlags(spec, words, {}, none);
  if (!flags.ok()) return flags.status();
  return ReadFormat(*flags);
}

TEST(FormatFlagsTest, NoFlagAsksForNoForm) {
  const auto format = Read({});
  ASSERT_TRUE(format.ok()) << format.status();
  EXPECT_FALSE(format->has_value());
}

TEST(FormatFlagsTest, EachFlagIsAForm) {
  const TempDirectory directory;
  const std::string file = directory.path() + "/form";
  std::ofstream(file) << "{}";
  EXPECT_EQ((**Read({"--json-object"})).kind, Kind::kJsonObject);
  EXPECT_EQ((**Read({"--regex", "a+"})).text, "a+");
  EXPECT_THAT((**Read({"--choice", "yes,no"})).choices, testing::ElementsAre("yes", "no"));
  for (const auto& [flag, kind] :
       {std::pair("--json-schema", Kind::kJsonSchema), std::pair("--grammar", Kind::kGrammar)}) {
    const auto format = Read({flag, file});
    ASSERT_TRUE(format.ok()) << format.status();
    EXPECT_EQ((*format)->kind, kind);
    EXPECT_EQ((*format)->text, "{}");
  }
}

TEST(FormatFlagsTest, ErrorsNameTheFlag) {
  EXPECT_THAT(std::string(Read({"--json-object", "--regex", "a"}).status().message()),
              testing::HasSubstr("--regex: given beside --json-object"));
  EXPECT_THAT(std::string(Read({"--regex", "\xFF"}).status().message()),
              testing::HasSubstr("--regex"));
  EXPECT_FALSE(Read({"--json-schema", "/no/such/file"}).ok());
}

}  // namespace
}  // namespace lowkey

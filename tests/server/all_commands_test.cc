#include "server/all_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <set>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/config/help.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CommandsTest, EveryCommandHasHelpExamplesAndDistinctFlags) {
  for (const Command& command : AllCommands()) {
    EXPECT_FALSE(command.spec.examples.empty()) << command.spec.name;
    EXPECT_FALSE(command.spec.summary.empty()) << command.spec.name;
    EXPECT_NE(command.run, nullptr);
    std::set<std::string_view> names;
    for (const FlagGroup& group : command.spec.groups) {
      for (const Flag& flag : group.flags) {
        EXPECT_TRUE(names.insert(flag.name).second) << command.spec.name << " --" << flag.name;
        EXPECT_EQ(flag.value_name.empty(), flag.kind == FlagKind::kSwitch) << flag.name;
      }
    }
    for (std::string_view example : command.spec.examples) {
      EXPECT_EQ(example.substr(0, 7), "lowkey ") << example;
    }
  }
}

void ExpectFits(const std::string& text, size_t columns) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), columns) << line;
  }
}

TEST(CommandsTest, HelpFitsTheTerminal) {
  for (const size_t columns : {80u, 60u}) {
    ExpectFits(MainHelpText(AllCommands(), columns), columns);
    for (const Command& command : AllCommands()) {
      ExpectFits(HelpText(command.spec, columns), columns);
    }
  }
}

TEST(CommandsTest, CommandsThatComputeANamedMechanismRefuseTheRulesOfAuto) {
  const FlagSources sources{[](const std::string&) { return std::nullopt; }, {}};
  const auto errors = [&](const std::vector<std::string>& arguments) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(RunCommandLine(AllCommands(), arguments, sources), 2);
    return ::testing::internal::GetCapturedStderr();
  };
  for (const char* command : {"eval", "logits", "attend"}) {
    for (const char* flag : {"--objective", "--allow", "--approximate", "--max-perplexity-ratio"}) {
      EXPECT_THAT(errors({command, flag, "1"}), HasSubstr(absl::StrCat("unknown flag ", flag)));
    }
  }
  EXPECT_THAT(errors({"attend", "--prefix-storage", "exact"}), HasSubstr("unknown flag"));
}

TEST(CommandsTest, ExceptionsAreErrorsOfTheCommand) {
  const FlagSources sources{[](const std::string&) { return std::nullopt; }, {}};
  const Command::Run runs[] = {
      [](const FlagValues&) -> absl::Status { throw std::bad_alloc(); },
      [](const FlagValues&) -> absl::Status { throw std::runtime_error("a fault"); }};
  for (const Command::Run run : runs) {
    EXPECT_EQ(RunCommandLine({Command("fail", "Fails.", run)}, {"fail"}, sources), 1);
  }
}

TEST(CommandsTest, EmptyPathIsAUsageError) {
  const FlagSources sources{[](const std::string&) { return std::nullopt; }, {}};
  EXPECT_EQ(RunCommandLine(AllCommands(), {"serve", "--model", ""}, sources), 2);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"inspect", "--model="}, sources), 2);
}

TEST(CommandsTest, MisspeltVariablesAreWarnedOf) {
  FlagSources sources;
  sources.environment = [](const std::string&) { return std::nullopt; };
  sources.variables = {"LOWKEY_CACHE_BYTE", "LOWKEY_MODEL"};
  const auto warnings = [&](const std::vector<std::string>& arguments) {
    ::testing::internal::CaptureStderr();
    RunCommandLine(AllCommands(), arguments, sources);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warnings({"serve", "--port", "abc"}),
              StartsWith("lowkey serve: warning: LOWKEY_CACHE_BYTE: ignored, as no flag is called "
                         "so; did you mean LOWKEY_CACHE_BYTES?\nlowkey serve: --port"));
  EXPECT_EQ(warnings({"serve", "--help"}), "");
  EXPECT_EQ(warnings({"man"}), "");
}

TEST(CommandsTest, UnknownCommandAndFlagAreUsageErrors) {
  FlagSources sources;
  sources.environment = [](const std::string&) { return std::nullopt; };
  EXPECT_EQ(RunCommandLine(AllCommands(), {"sevre"}, sources), 2);
  EXPECT_EQ(RunCommandLine(AllCommands(), {}, sources), 2);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"serve", "--prot", "1"}, sources), 2);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"serve", "--port", "abc"}, sources), 2);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"--help"}, sources), 0);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"serve", "--help"}, sources), 0);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"help", "serve"}, sources), 0);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"--version"}, sources), 0);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"serve", "--host", "0.0.0.0"}, sources), 2);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"health", "--server", "127.0.0.1:1"}, sources), 1);
}

}  // namespace
}  // namespace lowkey

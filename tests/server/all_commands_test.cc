#include "server/all_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lowkey {
namespace {

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

TEST(CommandsTest, HelpLinesFitAWideTerminal) {
  for (const Command& command : AllCommands()) {
    const std::string help = HelpText(command.spec);
    size_t begin = 0;
    while (begin < help.size()) {
      const size_t end = std::min(help.find('\n', begin), help.size());
      EXPECT_LE(end - begin, 120u) << help.substr(begin, end - begin);
      begin = end + 1;
    }
  }
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
  EXPECT_EQ(RunCommandLine(AllCommands(), {"--version"}, sources), 0);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"serve", "--host", "0.0.0.0"}, sources), 1);
  EXPECT_EQ(RunCommandLine(AllCommands(), {"health", "--server", "127.0.0.1:1"}, sources), 1);
}

}  // namespace
}  // namespace lowkey

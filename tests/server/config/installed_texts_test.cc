#include "server/config/installed_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "server/all_commands.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

bool HasProgram(const std::string& name) {
  return std::system(("command -v " + name + " >/dev/null").c_str()) == 0;
}

// What a shell's command line prints, errors included.
std::string Shell(const std::string& command) {
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> chunk;
  for (size_t n; (n = std::fread(chunk.data(), 1, chunk.size(), pipe)) > 0;) {
    output.append(chunk.data(), n);
  }
  EXPECT_EQ(pclose(pipe), 0) << command << ": " << output;
  return output;
}

class CompletionTest : public ::testing::Test {
 protected:
  // A file with the shell's script.
  std::string Script(const std::string& shell) {
    const auto script = CompletionScript(shell, AllCommands());
    EXPECT_TRUE(script.ok()) << script.status();
    std::string path = folder_.path() + "/" + shell;
    WriteFileOrDie(path, *script);
    return path;
  }

  // What bash offers for the last of `words`.
  std::string Offered(const std::string& words) {
    return Shell("bash -c 'source " + Script("bash") + "; COMP_WORDS=(" + words +
                 "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lowkey; echo \" ${COMPREPLY[*]} \"'");
  }

  TempDirectory folder_;
};

TEST_F(CompletionTest, BashCompletesCommandsFlagsAndValues) {
  EXPECT_EQ(Offered("lowkey gen"), " generate \n");
  EXPECT_EQ(Offered("lowkey serve --max-new"), " --max-new-tokens \n");
  EXPECT_EQ(Offered("lowkey serve --dtype b"), " bfloat16 \n");
  EXPECT_EQ(Offered("lowkey serve --dtype = int"), " int8 \n");
  EXPECT_EQ(Offered("lowkey completion z"), " zsh \n");
  EXPECT_THAT(Offered("lowkey chat --"), AllOf(HasSubstr(" --system "), Not(HasSubstr("--host "))));
}

TEST_F(CompletionTest, ShellsThatAreHereReadTheirScripts) {
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string script = Script(shell);
    if (HasProgram(shell)) {
      EXPECT_EQ(Shell(shell + " -n " + script), "");
    }
  }
}

TEST_F(CompletionTest, OtherShellsAreRefused) {
  EXPECT_EQ(CompletionScript("tcsh", AllCommands()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ManualTest, ShowsEveryCommandAndEscapesRoff) {
  const std::string page = ManualPage(AllCommands(), "1.2.3");
  for (const Command& command : AllCommands()) {
    EXPECT_THAT(page, HasSubstr(".SS \"lowkey " + std::string(command.spec.name)));
  }
  EXPECT_THAT(page, HasSubstr("lowkey 1.2.3"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-max\\-new\\-tokens\\fR \\fIN\\fR"));
}

TEST(ManualTest, GroffHasNothingToWarnOf) {
  if (!HasProgram("groff")) GTEST_SKIP() << "no groff";
  const TempDirectory folder;
  const std::string page = folder.path() + "/lowkey.1";
  WriteFileOrDie(page, ManualPage(AllCommands(), "1.2.3"));
  EXPECT_EQ(Shell("groff -man -Tutf8 -ww " + page + " >/dev/null"), "");
}

}  // namespace
}  // namespace lowkey

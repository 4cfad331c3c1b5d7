#include "server/config/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "server/config/help.h"

namespace lowkey {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Flag kFlags[] = {
    {"port", "N", "50051", "where to listen"},
    {"host", "ADDRESS", "", "address"},
    {"stop", "TEXT", "", "stop here", FlagKind::kRepeated},
    {"json", "", "", "print JSON", FlagKind::kSwitch},
    {"config", "FILE", "", "flags from a file"},
    {"max-new-tokens", "N", "", "tokens to generate at most"},
};
constexpr std::string_view kKnown[] = {"port", "host", "stop", "json", "config", "temperature"};

class FlagsTest : public ::testing::Test {
 protected:
  FlagsTest() {
    spec_.name = "try";
    spec_.positional = "[TEXT]";
    spec_.description = "Tries.";
    spec_.groups = {{"Things", kFlags}};
    spec_.examples = {"lowkey try"};
  }

  absl::StatusOr<FlagValues> Parse(const std::vector<std::string>& arguments) {
    FlagSources sources;
    sources.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto it = environment_.find(name);
      if (it == environment_.end()) return std::nullopt;
      return it->second;
    };
    sources.read_file = [this](const std::string& path) -> absl::StatusOr<std::string> {
      const auto it = files_.find(path);
      if (it == files_.end()) return absl::NotFoundError(path + ": cannot be opened");
      return it->second;
    };
    return ParseFlags(spec_, arguments, kKnown, sources);
  }

  FlagValues Parsed(const std::vector<std::string>& arguments) {
    absl::StatusOr<FlagValues> values = Parse(arguments);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *std::move(values) : FlagValues();
  }

  std::string Error(const std::vector<std::string>& arguments) {
    return std::string(Parse(arguments).status().message());
  }

  CommandSpec spec_;
  std::map<std::string, std::string> environment_, files_;
};

TEST_F(FlagsTest, TakesBothSpellingsOfAValue) {
  EXPECT_EQ(Parsed({"--port", "1"}).Text("port"), "1");
  EXPECT_EQ(Parsed({"--port=2"}).Text("port"), "2");
  EXPECT_EQ(Parsed({"-port", "3"}).Text("port"), "3");
  EXPECT_EQ(Parsed({"--host="}).Text("host"), "");
  EXPECT_TRUE(Parsed({"--host="}).IsGiven("host"));
}

TEST_F(FlagsTest, DefaultIsThereButNotGiven) {
  const FlagValues values = Parsed({});
  EXPECT_TRUE(values.Has("port"));
  EXPECT_FALSE(values.IsGiven("port"));
  EXPECT_FALSE(values.Has("host"));
  EXPECT_EQ(values.Text("port"), "50051");
}

TEST_F(FlagsTest, CommandLineBeatsEnvironmentBeatsFileBeatsDefault) {
  files_["f"] = "port = 3\nhost = from-file\n";
  EXPECT_EQ(Parsed({}).Text("port"), "50051");
  EXPECT_EQ(Parsed({"--config", "f"}).Text("port"), "3");
  environment_["LOWKEY_PORT"] = "2";
  EXPECT_EQ(Parsed({"--config", "f"}).Text("port"), "2");
  EXPECT_EQ(Parsed({"--config", "f", "--port", "1"}).Text("port"), "1");
  EXPECT_EQ(Parsed({"--config", "f", "--port", "1"}).Text("host"), "from-file");
}

TEST_F(FlagsTest, ConfigFileIsNamedByTheEnvironmentToo) {
  files_["f"] = "port = 3";
  environment_["LOWKEY_CONFIG"] = "f";
  EXPECT_EQ(Parsed({}).Text("port"), "3");
}

TEST_F(FlagsTest, AConfigFileThatCannotBeReadIsAUsageError) {
  const absl::Status status = Parse({"--config", "none"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "config: none: cannot be opened");
}

TEST_F(FlagsTest, ConfigFileHasCommentsBlankLinesAndRepeats) {
  files_["f"] = "# a comment\n\n  stop = one two  \nstop=b\r\njson = yes\n";
  const FlagValues values = Parsed({"--config=f"});
  EXPECT_THAT(values.Texts("stop"), ElementsAre("one two", "b"));
  EXPECT_TRUE(values.Switch("json"));
}

TEST_F(FlagsTest, ConfigFileMayHoldOtherCommandsFlags) {
  files_["f"] = "temperature = 1\nport = 3";
  EXPECT_EQ(Parsed({"--config=f"}).Text("port"), "3");
}

TEST_F(FlagsTest, ConfigFileMayBeginWithAByteOrderMark) {
  files_["f"] = "\xEF\xBB\xBFport = 3";
  EXPECT_EQ(Parsed({"--config=f"}).Text("port"), "3");
}

TEST_F(FlagsTest, ConfigErrorsNameTheLine) {
  files_["f"] = "port = 3\nprot = 4\n";
  EXPECT_THAT(Error({"--config=f"}), HasSubstr("f:2: unknown flag prot; did you mean port?"));
  files_["f"] = "\nport 3";
  EXPECT_THAT(Error({"--config=f"}), HasSubstr("f:2: \"port 3\""));
  EXPECT_THAT(Error({"--config=absent"}), HasSubstr("absent"));
  files_["f"] = "port = 3\nconfig = g\n";
  EXPECT_THAT(Error({"--config=f"}), HasSubstr("f:2: config: not in a file"));
}

TEST_F(FlagsTest, RepeatedFlagsAddUpAndOthersTakeTheLast) {
  EXPECT_THAT(Parsed({"--stop", "a", "--stop", "b"}).Texts("stop"), ElementsAre("a", "b"));
  EXPECT_EQ(Parsed({"--port", "1", "--port", "2"}).Text("port"), "2");
}

TEST_F(FlagsTest, RepeatedFlagsReplaceThoseOfAWeakerSource) {
  environment_["LOWKEY_STOP"] = "env";
  files_["f"] = "stop = file";
  EXPECT_THAT(Parsed({"--config=f"}).Texts("stop"), ElementsAre("env"));
  EXPECT_THAT(Parsed({"--config=f", "--stop=a"}).Texts("stop"), ElementsAre("a"));
}

TEST_F(FlagsTest, UnknownFlagNamesTheNearest) {
  EXPECT_THAT(Error({"--prot", "1"}), HasSubstr("unknown flag --prot of `lowkey try`"));
  EXPECT_THAT(Error({"--prot", "1"}), HasSubstr("did you mean --port?"));
  EXPECT_THAT(Error({"--prot=1"}), HasSubstr("--prot of"));
  EXPECT_THAT(Error({"--xylophone"}), Not(HasSubstr("did you mean")));
  EXPECT_THAT(Error({"--max-tokens", "8"}), HasSubstr("did you mean --max-new-tokens?"));
}

TEST_F(FlagsTest, EmptyPathIsAnError) {
  EXPECT_THAT(Error({"--config", ""}), HasSubstr("--config: \"\", expected FILE"));
  EXPECT_THAT(Error({"--config="}), HasSubstr("--config: \"\", expected FILE"));
}

TEST_F(FlagsTest, MissingValueAndBadSwitchAreErrors) {
  EXPECT_THAT(Error({"--port"}), HasSubstr("--port: no value, expected N"));
  EXPECT_THAT(Error({"--json=perhaps"}), HasSubstr("--json: \"perhaps\", expected true or false"));
  EXPECT_FALSE(Parsed({"--json=false"}).Switch("json"));
}

TEST_F(FlagsTest, NegativeNumberIsAValue) {
  EXPECT_EQ(Parsed({"--port", "-1"}).Text("port"), "-1");
}

TEST_F(FlagsTest, PositionalsMayFollowTwoDashes) {
  EXPECT_THAT(Parsed({"a", "--json", "b"}).positional(), ElementsAre("a", "b"));
  EXPECT_THAT(Parsed({"--", "--json"}).positional(), ElementsAre("--json"));
  EXPECT_THAT(Parsed({"-"}).positional(), ElementsAre("-"));
  spec_.positional = "";
  EXPECT_THAT(Error({"a"}), HasSubstr("unexpected argument \"a\""));
}

TEST_F(FlagsTest, HelpWinsOverABrokenEnvironment) {
  environment_["LOWKEY_CONFIG"] = "absent";
  EXPECT_TRUE(Parsed({"--help"}).wants_help());
  EXPECT_TRUE(Parsed({"-h"}).wants_help());
}

TEST_F(FlagsTest, ErrorsNameTheSource) {
  environment_["LOWKEY_PORT"] = "x";
  EXPECT_THAT(std::string(Parsed({}).Int("port", 0, 9).status().message()),
              HasSubstr("LOWKEY_PORT: \"x\", expected an integer in 0..9"));
  files_["f"] = "host = y";
  EXPECT_THAT(std::string(Parsed({"--config=f"}).Error("host", "a host").message()),
              HasSubstr("f:1: host: \"y\", expected a host"));
}

TEST_F(FlagsTest, HelpAlignsFlagsAndShowsDefaults) {
  const std::string help = HelpText(spec_);
  EXPECT_THAT(help, HasSubstr("Usage: lowkey try [flags] [TEXT]"));
  EXPECT_THAT(help, HasSubstr("  --port N            where to listen [50051]\n"));
  EXPECT_THAT(help, HasSubstr("  --host ADDRESS      address\n"));
  EXPECT_THAT(help, HasSubstr("  --stop TEXT         stop here; may be repeated\n"));
  EXPECT_THAT(help, HasSubstr("Examples:\n  lowkey try\n"));
}

TEST_F(FlagsTest, HelpWrapsForANarrowTerminal) {
  const std::string help = HelpText(spec_, 40);
  EXPECT_THAT(help, HasSubstr("  --port N        where to listen\n                  [50051]\n"));
  EXPECT_THAT(help, HasSubstr("  --max-new-tokens N\n                  tokens to generate at\n"));
}

TEST(EnvironmentNameTest, IsTheFlagInCapitals) {
  EXPECT_EQ(EnvironmentName("max-new-tokens"), "LOWKEY_MAX_NEW_TOKENS");
}

TEST(FlagSourcesTest, ReadsFilesAndRefusesHugeOnes) {
  const FlagSources sources = FlagSources::Process();
  EXPECT_EQ(sources.read_file("/nonexistent/file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(sources.read_file("/dev/zero").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(sources.environment("LOWKEY_NO_SUCH_FLAG").has_value());
}

TEST(FlagSourcesTest, NamesTheVariablesThatHaveAValue) {
  setenv("LOWKEY_FLAGS_TEST", "1", 1);
  setenv("LOWKEY_FLAGS_TEST_EMPTY", "", 1);
  const std::vector<std::string> names = FlagSources::Process().variables;
  unsetenv("LOWKEY_FLAGS_TEST");
  unsetenv("LOWKEY_FLAGS_TEST_EMPTY");
  EXPECT_THAT(names, Contains("LOWKEY_FLAGS_TEST"));
  EXPECT_THAT(names, Not(Contains("LOWKEY_FLAGS_TEST_EMPTY")));
}

}  // namespace
}  // namespace lowkey

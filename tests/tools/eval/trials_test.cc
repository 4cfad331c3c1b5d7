#include "tools/eval/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/common_flags.h"

namespace lowkey {
namespace {

using ::testing::StartsWith;

constexpr Flag kFlags[] = {{"try", "ATTENTION", "", "measure this", FlagKind::kRepeated},
                           {"as-generated", "", "", "one by one", FlagKind::kSwitch}};

absl::StatusOr<std::vector<Trial>> Read(const std::vector<std::string>& arguments) {
  CommandSpec spec;
  spec.name = "eval";
  spec.groups = {{"Evaluation", kFlags}, {"Attention", NamedAttentionFlags()}};
  FlagSources none;
  none.environment = [](const std::string&) { return std::nullopt; };
  const auto flags = ParseFlags(spec, arguments, {}, none);
  return flags.ok() ? ReadTrials(*flags) : flags.status();
}

TEST(TrialsTest, EachTryIsATrialThatCompressesTheText) {
  const auto trials = Read({"--try", "standard", "--try", "atp  --rank 16"});
  ASSERT_TRUE(trials.ok()) << trials.status();
  ASSERT_EQ(trials->size(), 2u);
  EXPECT_EQ((*trials)[0].attention.mechanism, Mechanism::kStandard);
  EXPECT_EQ((*trials)[1].attention.mechanism, Mechanism::kAtp);
  EXPECT_EQ((*trials)[1].attention.atp.prefill, AtpPrefill::kCompressed);
}

TEST(TrialsTest, ErrorsWithinATryNameIt) {
  for (const auto& [text, fault] : std::vector<std::pair<std::string, std::string>>{
           {"atp --rnk 16", "unknown flag --rnk; did you mean --rank?"},
           {"atp --block x", "--block: \"x\", expected an integer"},
           {"atp --objective memory", "unknown flag --objective"},
           {"auto", "attention: unknown attention mechanism \"auto\""},
           {"standard --rank 4", "attention"}}) {
    const absl::Status status = Read({"--try", text}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), StartsWith("--try \"" + text + "\": " + fault));
  }
}

}  // namespace
}  // namespace lowkey

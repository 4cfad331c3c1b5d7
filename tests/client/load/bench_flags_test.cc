#include "client/load/bench_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

FlagValues Parse(const std::vector<std::string>& arguments) {
  CommandSpec spec;
  spec.name = "bench";
  spec.groups = BenchFlagGroups();
  FlagSources sources;
  sources.environment = [](const std::string&) { return std::nullopt; };
  auto values = ParseFlags(spec, arguments, {}, sources);
  EXPECT_TRUE(values.ok()) << values.status();
  return *std::move(values);
}

BenchPlan Plan(const std::vector<std::string>& arguments) {
  auto plan = ReadBenchPlan(Parse(arguments));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

TEST(BenchFlagsTest, WithoutFlagsOneRequestAtATime) {
  const BenchPlan plan = Plan({});
  ASSERT_EQ(plan.levels.size(), 1u);
  EXPECT_EQ(plan.levels[0].concurrency, 1);
  const PointOptions point = MakePoint(plan, 0);
  EXPECT_EQ(point.concurrency, 1);
  EXPECT_EQ(point.n_requests, 108);
  EXPECT_EQ(point.n_warmup, 8);
  EXPECT_TRUE(point.arrivals_s.empty());
  EXPECT_FALSE(point.timeout_s.has_value());
}

TEST(BenchFlagsTest, RatesAreAnOpenLoopEach) {
  const BenchPlan plan = Plan({"--rate", "2,50", "--requests", "20", "--warmup", "0", "--timeout",
                               "3s", "--burstiness", "0.5", "--slo-ttft-ms", "200"});
  ASSERT_EQ(plan.levels.size(), 2u);
  EXPECT_EQ(plan.levels[1].rate_per_s, 50);
  EXPECT_EQ(plan.slo.ttft_ms, 200);
  EXPECT_FALSE(plan.slo.itl_ms.has_value());
  const PointOptions slow = MakePoint(plan, 0), fast = MakePoint(plan, 1);
  EXPECT_THAT(slow.arrivals_s, SizeIs(20));
  EXPECT_EQ(slow.n_requests, 20);
  EXPECT_EQ(fast.point, 1);
  EXPECT_EQ(fast.timeout_s, 3);
  // The same schedule, 25 times as fast.
  EXPECT_NEAR(slow.arrivals_s.back() / fast.arrivals_s.back(), 25, 1e-6);
}

TEST(BenchFlagsTest, AClosedLoopIsFilledBeforeItCounts) {
  const BenchPlan plan = Plan({"--concurrency", "2,64"});
  EXPECT_EQ(MakePoint(plan, 0).n_warmup, 8);
  EXPECT_EQ(MakePoint(plan, 1).n_warmup, 64);
  EXPECT_EQ(MakePoint(plan, 1).n_requests, 64 + 4 * 64);
  EXPECT_EQ(
      MakePoint(Plan({"--concurrency", "64", "--warmup", "3", "--requests", "5"}), 0).n_requests,
      8);
}

TEST(BenchFlagsTest, DurationAloneLetsItsTimeDecide) {
  const PointOptions closed = MakePoint(Plan({"--concurrency", "4", "--duration", "5s"}), 0);
  EXPECT_EQ(closed.duration_s, 5);
  EXPECT_GT(closed.n_requests, 100000);
  const PointOptions open = MakePoint(Plan({"--rate", "100", "--duration", "5s"}), 0);
  EXPECT_LE(open.arrivals_s.back(), 5);
  EXPECT_NEAR(static_cast<double>(open.n_requests), 500, 120);
}

class BenchTraceTest : public ::testing::Test {
 protected:
  BenchTraceTest() : path_(directory_.path() + "/trace.csv") {
    std::ofstream(path_) << "0,10,4\n0.5,20,8\n2,30,8\n";
  }

  const TempDirectory directory_;
  const std::string path_;
};

TEST_F(BenchTraceTest, AloneBringsItsOwnArrivals) {
  const PointOptions whole = MakePoint(Plan({"--trace", path_}), 0);
  EXPECT_THAT(whole.arrivals_s, ElementsAre(0, 0.5, 2));
  EXPECT_EQ(whole.n_requests, 3);
  EXPECT_EQ(whole.n_warmup, 0);
  EXPECT_THAT(MakePoint(Plan({"--trace", path_, "--duration", "1"}), 0).arrivals_s,
              ElementsAre(0, 0.5));
  EXPECT_THAT(MakePoint(Plan({"--trace", path_, "--requests", "1", "--warmup", "0"}), 0).arrivals_s,
              ElementsAre(0));
}

TEST_F(BenchTraceTest, IsNotWholeWarmup) {
  EXPECT_TRUE(ReadBenchPlan(Parse({"--trace", path_, "--warmup", "2"})).ok());
  EXPECT_THAT(
      std::string(ReadBenchPlan(Parse({"--trace", path_, "--warmup", "3"})).status().message()),
      HasSubstr("--warmup: \"3\", expected fewer than the trace's 3 requests"));
}

TEST_F(BenchTraceTest, GivesOnlyLengthsToARateOrAConcurrency) {
  const PointOptions closed = MakePoint(Plan({"--trace", path_, "--concurrency", "2"}), 0);
  EXPECT_EQ(closed.concurrency, 2);
  EXPECT_EQ(closed.n_requests, 3);
  const BenchPlan plan = Plan({"--trace", path_, "--rate", "2", "--requests", "9"});
  EXPECT_EQ(MakePoint(plan, 0).n_requests, 17);
  EXPECT_THAT(plan.workload.trace, SizeIs(3));
}

TEST(BenchFlagsTest, MixTakesSharesWithOptionsBesideTheNames) {
  const auto mix = ReadMix(Parse({"--attention", "standard=0.7,atp --rank 1/8 --basis kv=0.3"}));
  ASSERT_TRUE(mix.ok()) << mix.status();
  ASSERT_EQ(mix->size(), 2u);
  EXPECT_EQ((*mix)[0].label, "standard");
  EXPECT_EQ((*mix)[0].weight, 0.7);
  EXPECT_EQ((*mix)[1].label, "atp --rank 1/8 --basis kv");
  EXPECT_EQ((*mix)[1].attention.options, (OptionValues{{"rank", "1/8"}, {"basis", "kv"}}));
  EXPECT_EQ((*mix)[1].weight, 0.3);
}

TEST(BenchFlagsTest, OneMechanismTakesGeneratesFlags) {
  const auto mix = ReadMix(Parse({"--attention", "atp", "--rank", "16", "--block", "128"}));
  ASSERT_TRUE(mix.ok()) << mix.status();
  ASSERT_EQ(mix->size(), 1u);
  EXPECT_EQ((*mix)[0].label, "atp --rank 16 --block 128");
  EXPECT_EQ((*mix)[0].attention.options.at("block_tokens"), OptionValue(128));
  EXPECT_EQ(ReadMix(Parse({}))->at(0).label, "the server's default");
}

TEST(BenchFlagsTest, BadFlagsAreNamedWithWhatWasExpected) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--rate", "2", "--concurrency", "4"}, "--rate and --concurrency: both given"},
      {{"--rate", "1,,2"}, "--rate: \"1,,2\""},
      {{"--rate", "0"}, "--rate"},
      {{"--rate", "nan"}, "--rate"},
      {{"--rate", "1e9"}, "--rate"},
      {{"--concurrency", "0"}, "--concurrency: \"0\", expected integers in 1..100000"},
      {{"--concurrency", "x"}, "--concurrency"},
      {{"--burstiness", "0"}, "--burstiness: \"0\", expected a number over 0"},
      {{"--requests", "0"}, "--requests"},
      {{"--warmup", "-1"}, "--warmup"},
      {{"--duration", "soon"}, "--duration"},
      {{"--slo-itl-ms", "-5"}, "--slo-itl-ms"},
      {{"--input-tokens", "uniform:9-1"}, "--input-tokens: \"uniform:9-1\""},
      {{"--output-tokens", "0"}, "--output-tokens: \"0\""},
      {{"--attention", "standard=1,atp"}, "--attention"},
      {{"--attention", "standard=0"}, "--attention"},
      {{"--attention", "=1"}, "--attention"},
      {{"--attention", "magic=1"}, "magic"},
      {{"--attention", "magic"}, "magic"},
      {{"--attention", "standard --rank 4=1"}, "rank"},
      {{"--attention", "atp --rnk 4=1"}, "--attention: unknown flag --rnk; did you mean --rank?"},
      {{"--attention", "standard=1,atp=1", "--rank", "4"}, "--rank: \"4\", expected it beside"}};
  for (const auto& [arguments, message] : cases) {
    const absl::Status status = ReadBenchPlan(Parse(arguments)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << arguments.back();
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
  EXPECT_EQ(ReadBenchPlan(Parse({"--trace", "/nonexistent"})).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(BenchFlagsTest, ReportsRepeatWhatWasSet) {
  const auto set = SetFlags(Parse({"--rate", "4", "--attention", "atp"}));
  EXPECT_THAT(set, Contains(Pair("--rate", "4")));
  EXPECT_THAT(set, Contains(Pair("--attention", "atp")));
  EXPECT_THAT(set, Contains(Pair("--input-tokens", "128")));
  EXPECT_THAT(set, Not(Contains(Pair("--concurrency", "1"))));
}

}  // namespace
}  // namespace lowkey

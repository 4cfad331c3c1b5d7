#include "client/load/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

TEST(SummarizeTest, PercentilesAreTheLeastThatCoverTheirShare) {
  std::vector<double> values(200);
  std::iota(values.rbegin(), values.rend(), 1.0);
  const Summary summary = Summarize(values);
  EXPECT_EQ(summary.n, 200);
  EXPECT_EQ(summary.mean, 100.5);
  EXPECT_EQ(summary.p50, 100);
  EXPECT_EQ(summary.p90, 180);
  EXPECT_EQ(summary.p95, 190);
  EXPECT_EQ(summary.p99, 198);
  EXPECT_EQ(summary.max, 200);
}

TEST(SummarizeTest, OneValueIsEveryPercentile) {
  const Summary summary = Summarize({3});
  EXPECT_EQ(summary.p50, 3);
  EXPECT_EQ(summary.p99, 3);
  EXPECT_EQ(Summarize({}).n, 0);
}

// Due at `due_s`, first token after `ttft_s`, then gaps of `gap_ms`.
RequestRecord Record(double due_s, double ttft_s, int n_tokens, double gap_ms) {
  RequestRecord record;
  record.due_s = due_s;
  record.n_prompt_tokens = 10;
  record.stream.started_s = due_s;
  record.stream.first_token_s = due_s + ttft_s;
  record.stream.n_output_tokens = n_tokens;
  record.stream.gaps_ms.assign(static_cast<size_t>(n_tokens - 1), static_cast<float>(gap_ms));
  record.stream.ended_s = due_s + ttft_s + (n_tokens - 1) * gap_ms * 1e-3;
  record.stream.engine_s = ttft_s;
  record.stream.peak_cache_bytes = 1000;
  return record;
}

RequestRecord Refused(double due_s, absl::StatusCode code) {
  RequestRecord record;
  record.due_s = due_s;
  record.stream.status = absl::Status(code, "no");
  record.stream.ended_s = due_s + 0.004;
  return record;
}

const std::vector<MixShare>& Mix() {
  static const auto* const mix = new std::vector<MixShare>{{"standard"}, {"atp"}};
  return *mix;
}

PointResult Evaluated(const PointRun& run, const Slo& slo) {
  PointResult result;
  Evaluate(run, Mix(), slo, result);
  return result;
}

TEST(EvaluateTest, RatesCountFromTheFirstDueToTheLastEnd) {
  PointRun run;
  run.records = {Record(1, 0.5, 11, 50), Record(2, 0.5, 11, 150)};
  const PointResult result = Evaluated(run, {});
  EXPECT_DOUBLE_EQ(result.seconds, 3);
  EXPECT_DOUBLE_EQ(result.all.requests_per_s, 2 / 3.0);
  EXPECT_DOUBLE_EQ(result.all.output_tokens_per_s, 22 / 3.0);
  EXPECT_DOUBLE_EQ(result.all.total_tokens_per_s, 42 / 3.0);
  EXPECT_NEAR(result.all.ttft_ms.p50, 500, 1e-6);
  EXPECT_EQ(result.all.itl_ms.n, 20);
  EXPECT_NEAR(result.all.itl_ms.mean, 100, 1e-6);
  EXPECT_NEAR(result.all.e2e_ms.max, 2000, 1e-6);
  EXPECT_NEAR(result.all.outside_ms.p50, 500, 1e-6);
  EXPECT_EQ(result.all.mean_cache_bytes, 1000);
}

TEST(EvaluateTest, WarmupIsLeftOutOfEverything) {
  PointRun run;
  run.records = {Record(0, 9, 2, 1), Record(1, 0.5, 2, 1)};
  run.records[0].is_warmup = run.records[0].is_cut = true;
  const PointResult result = Evaluated(run, {});
  EXPECT_EQ(result.n_warmup, 1);
  EXPECT_EQ(result.n_cut, 0);
  EXPECT_EQ(result.all.n_requests, 1);
  EXPECT_NEAR(result.all.ttft_ms.max, 500, 1e-6);
  EXPECT_NEAR(result.seconds, 0.501, 1e-9);
}

TEST(EvaluateTest, GoodputKeepsBothBounds) {
  PointRun run;
  run.records = {Record(0, 0.1, 11, 10), Record(0, 0.3, 11, 10), Record(0, 0.1, 11, 90),
                 Record(0, 0.1, 1, 0), Refused(0, absl::StatusCode::kResourceExhausted)};
  EXPECT_EQ(Evaluated(run, {}).all.n_good, 4) << "without bounds whatever ended well";
  EXPECT_EQ(Evaluated(run, {200, {}}).all.n_good, 3);
  EXPECT_EQ(Evaluated(run, {{}, 50}).all.n_good, 3);
  const PointResult both = Evaluated(run, {200, 50});
  EXPECT_EQ(both.all.n_good, 2);
  EXPECT_DOUBLE_EQ(both.all.good_tokens_per_s, 12 / both.seconds);
  EXPECT_DOUBLE_EQ(both.all.good_requests_per_s, 2 / both.seconds);
}

TEST(EvaluateTest, ErrorsAreCountedByCodeAndRefusalsTimed) {
  PointRun run;
  run.records = {Record(0, 0.1, 3, 10), Refused(0, absl::StatusCode::kResourceExhausted),
                 Refused(1, absl::StatusCode::kResourceExhausted), Record(0, 0.1, 3, 10)};
  run.records[3].stream.status = absl::DeadlineExceededError("late");
  const GroupResult all = Evaluated(run, {}).all;
  EXPECT_THAT(all.errors, ElementsAre(Pair("DEADLINE_EXCEEDED", 1), Pair("RESOURCE_EXHAUSTED", 2)));
  EXPECT_EQ(all.n_ok, 1);
  EXPECT_EQ(all.refusal_ms.n, 2) << "a stream with tokens was not refused";
  EXPECT_NEAR(all.refusal_ms.p50, 4, 1e-6);
  EXPECT_EQ(all.n_output_tokens, 3);
}

TEST(EvaluateTest, MechanismsAreCountedApart) {
  PointRun run;
  run.records = {Record(0, 0.1, 3, 10), Record(0, 0.2, 3, 10), Record(0, 0.4, 3, 10)};
  run.records[1].mix_index = run.records[2].mix_index = 1;
  const PointResult result = Evaluated(run, {});
  ASSERT_EQ(result.mechanisms.size(), 2u);
  EXPECT_EQ(result.mechanisms[0].label, "standard");
  EXPECT_EQ(result.mechanisms[0].n_ok, 1);
  EXPECT_EQ(result.mechanisms[1].n_ok, 2);
  EXPECT_NEAR(result.mechanisms[1].ttft_ms.max, 400, 1e-6);
  EXPECT_NEAR(result.mechanisms[0].requests_per_s + result.mechanisms[1].requests_per_s,
              result.all.requests_per_s, 1e-9);
}

TEST(EvaluateTest, NoRequestAtAllHasNoRate) {
  const PointResult result = Evaluated({}, {});
  EXPECT_EQ(result.seconds, 0);
  EXPECT_EQ(result.all.output_tokens_per_s, 0);
  EXPECT_THAT(Notes(result, {}), ElementsAre("no request began after the warm-up"));
  PointRun refused;
  refused.records = {Refused(0, absl::StatusCode::kUnavailable)};
  EXPECT_THAT(Notes(Evaluated(refused, {}), {}), ElementsAre("no request ended well"));
}

PointResult Healthy() {
  PointResult result;
  result.all.n_ok = result.all.n_requests = 1000;
  result.all.ttft_ms = Summarize({40});
  result.lag_ms = result.wake_ms = Summarize({0.5});
  result.cpu_cores = 0.1;
  return result;
}

TEST(NotesTest, AHealthyRunHasNone) { EXPECT_THAT(Notes(Healthy(), {2, true}), IsEmpty()); }

TEST(NotesTest, ALateGeneratorIsTheBottleneck) {
  PointResult result = Healthy();
  result.lag_ms = Summarize({30});
  result.cpu_cores = 0.8;
  EXPECT_THAT(Notes(result, {16, true}), ElementsAre(HasSubstr("up to 30.0 ms (p99) after their")));
  // Nobody minds 30 ms where a first token takes two seconds.
  result.all.ttft_ms = Summarize({2000});
  EXPECT_THAT(Notes(result, {16, true}), IsEmpty());
}

TEST(NotesTest, AnIdleGeneratorThatIsLateWasNotGivenItsTurn) {
  PointResult result = Healthy();
  result.lag_ms = Summarize({30});
  EXPECT_THAT(Notes(result, {2, true}),
              ElementsAre(AllOf(HasSubstr("machine is overloaded"), HasSubstr("30.0 ms"))));
}

TEST(NotesTest, ABusyGeneratorIsTheBottleneck) {
  PointResult result = Healthy();
  result.cpu_cores = 1.9;
  EXPECT_THAT(Notes(result, {2, false}),
              ElementsAre(HasSubstr("GENERATOR IS THE BOTTLENECK: it used 1.9 of 2 cores")));
  EXPECT_THAT(Notes(result, {8, false}), IsEmpty());
}

TEST(NotesTest, AGeneratorBesideItsServerSaysWhatItTakes) {
  PointResult result = Healthy();
  result.cpu_cores = 0.5;
  EXPECT_THAT(Notes(result, {2, true}), ElementsAre(HasSubstr("0.50 of 2 cores of the server's")));
  EXPECT_THAT(Notes(result, {2, false}), IsEmpty());
}

TEST(NotesTest, LateWakesFewRequestsAndCutsAreTold) {
  PointResult result = Healthy();
  result.wake_ms = Summarize({25});
  result.all.n_ok = 20;
  result.n_cut = 3;
  const std::vector<std::string> notes = Notes(result, {2, false});
  EXPECT_THAT(notes, Contains(HasSubstr("woke up to 25.0 ms")));
  EXPECT_THAT(notes, Contains(HasSubstr("20 requests")));
  EXPECT_THAT(notes, Contains(HasSubstr("3 of 1000 requests were cut")));
  EXPECT_THAT(notes, Not(Contains(HasSubstr("BOTTLENECK"))));
}

}  // namespace
}  // namespace lowkey

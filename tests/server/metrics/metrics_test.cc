#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/server/fake_engine.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct DeafSink : Sink {
  SinkAnswer OnToken(int32_t, const SampledToken&) override { return SinkAnswer::kContinue; }
  void OnDone(const FinalEvent&) override {}
};

GenerationResult Ended(Mechanism mechanism, std::vector<ChoiceFinish> choices) {
  GenerationResult result;
  result.choices = std::move(choices);
  result.engine.attention.mechanism = mechanism;
  result.engine.timings = {.queue_us = 1000, .ttft_us = 2000};
  return result;
}

TEST(MetricsTest, SeriesAreThereBeforeTheFirstEvent) {
  const std::string text = Metrics("tales").Text();
  for (const char* line :
       {"vllm:request_success_total{model_name=\"tales\",finished_reason=\"length\"} 0\n",
        "lowkey:requests_total{model_name=\"tales\",mechanism=\"taylorshift\"} 0\n",
        "lowkey:refused_requests_total{model_name=\"tales\",code=\"RESOURCE_EXHAUSTED\"} 0\n",
        "vllm:time_to_first_token_seconds_count{model_name=\"tales\"} 0\n",
        "# TYPE vllm:inter_token_latency_seconds histogram\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(MetricsTest, CountsTheLinesThatTheLogDropped) {
  Metrics metrics("tales");
  const std::string name = "lowkey:log_lines_dropped_total{model_name=\"tales\"} ";
  EXPECT_THAT(metrics.Text(), HasSubstr(name + "0\n"));
  metrics.WatchLog([] { return 7; });
  EXPECT_THAT(metrics.Text(), HasSubstr(name + "7\n"));
}

TEST(MetricsTest, WithoutAnEngineItsGaugesAreAbsent) {
  EXPECT_THAT(Metrics("tales").Text(), Not(HasSubstr("vllm:num_requests_running")));
}

TEST(MetricsTest, EngineGaugesAreWhatItSaysNow) {
  FakeEngine engine;
  Metrics metrics("tales");
  metrics.SetEngine(&engine);
  EXPECT_THAT(metrics.Text(), HasSubstr("vllm:num_requests_running{model_name=\"tales\"} 0\n"));
  ASSERT_TRUE(engine.Submit(EngineRequest(), std::make_unique<DeafSink>()).ok());
  EXPECT_THAT(metrics.Text(), HasSubstr("vllm:num_requests_running{model_name=\"tales\"} 1\n"));
  // No cache at all is not a division by zero.
  EXPECT_THAT(metrics.Text(), HasSubstr("vllm:kv_cache_usage_perc{model_name=\"tales\"} 0\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("dtype=\"float32\""));
}

TEST(MetricsTest, EndsAreCountedByReasonAndMechanism) {
  Metrics metrics("m");
  metrics.ObserveEnd(Ended(Mechanism::kStandard, {{FinishReason::kStopToken, {}, 5},
                                                  {FinishReason::kStoppedBySink, "x", 6},
                                                  {FinishReason::kDeadline, {}, 7}}),
                     absl::Seconds(3));
  metrics.ObserveEnd(Ended(Mechanism::kLasso, {{FinishReason::kError, {}, 1}}), absl::Seconds(4));
  const std::string text = metrics.Text();
  for (const char* line : {"finished_reason=\"stop\"} 2\n", "finished_reason=\"abort\"} 1\n",
                           "finished_reason=\"length\"} 0\n", "finished_reason=\"error\"} 1\n",
                           "requests_total{model_name=\"m\",mechanism=\"standard\"} 1\n",
                           "generated_tokens_total{model_name=\"m\",mechanism=\"standard\"} 18\n",
                           "generated_tokens_total{model_name=\"m\",mechanism=\"lasso\"} 1\n",
                           "vllm:e2e_request_latency_seconds_sum{model_name=\"m\"} 7\n",
                           "vllm:request_queue_time_seconds_count{model_name=\"m\"} 2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(MetricsTest, RequestThatNeverBeganHasNoQueueTime) {
  Metrics metrics("m");
  GenerationResult result = Ended(Mechanism::kStandard, {{FinishReason::kCancelled, {}, 0}});
  result.engine.timings = {};
  metrics.ObserveEnd(result, absl::Seconds(1));
  EXPECT_THAT(metrics.Text(),
              HasSubstr("vllm:request_queue_time_seconds_count{model_name=\"m\"} 0"));
}

TEST(MetricsTest, PrincipalKeysSaveWhatStandardWouldHoldMore) {
  Metrics metrics("m");
  GenerationResult result = Ended(Mechanism::kAtp, {{FinishReason::kLength, {}, 1}});
  result.engine.attention.cache_bytes = 300;
  result.engine.attention.standard_cache_bytes = 1000;
  metrics.ObserveEnd(result, absl::Seconds(1));
  result.engine.attention.cache_bytes = 5000;  // a short one: its basis costs more
  metrics.ObserveEnd(result, absl::Seconds(1));
  EXPECT_THAT(metrics.Text(),
              HasSubstr("lowkey:principal_key_saved_bytes_total{model_name=\"m\"} 700\n"));
}

TEST(MetricsTest, RefusalsAreCountedByCode) {
  Metrics metrics("m");
  metrics.CountRefusal(absl::StatusCode::kUnavailable);
  metrics.CountRefusal(absl::StatusCode::kUnavailable);
  metrics.CountRefusal(absl::StatusCode::kNotFound);
  EXPECT_THAT(metrics.Text(), HasSubstr("code=\"UNAVAILABLE\"} 2\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("code=\"NOT_FOUND\"} 1\n"));
}

TEST(MetricsTest, BucketsHoldWhatWasObserved) {
  Metrics metrics("m");
  metrics.ObserveFirstToken(absl::Milliseconds(30));
  metrics.ObserveNextToken(absl::Milliseconds(200));
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("first_token_seconds_bucket{model_name=\"m\",le=\"0.02\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("first_token_seconds_bucket{model_name=\"m\",le=\"0.04\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("inter_token_latency_seconds_bucket{model_name=\"m\",le=\"0.15\"} 0"));
  EXPECT_THAT(text, HasSubstr("inter_token_latency_seconds_bucket{model_name=\"m\",le=\"0.3\"} 1"));
}

TEST(MetricsTest, ModelNameCannotBreakTheFormat) {
  const std::string text = Metrics("a\"b\\c\nd").Text();
  EXPECT_THAT(text, HasSubstr("model_name=\"a\\\"b\\\\c\\nd\""));
}

TEST(MetricsTest, ThreadsThatObserveLoseNothing) {
  Metrics metrics("m");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&metrics] {
      for (int n = 0; n < 1000; ++n) {
        metrics.ObserveNextToken(absl::Milliseconds(n));
        metrics.CountRefusal(absl::StatusCode::kUnavailable);
        if (n % 100 == 0) metrics.Text();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(metrics.Text(),
              HasSubstr("inter_token_latency_seconds_count{model_name=\"m\"} 4000"));
  EXPECT_THAT(metrics.Text(), HasSubstr("code=\"UNAVAILABLE\"} 4000\n"));
}

}  // namespace
}  // namespace lowkey

#include "server/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <initializer_list>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/metrics/families.h"
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
       {"vllm:request_success_total{engine=\"0\",model_name=\"tales\",finished_reason=\"length\"} "
        "0\n",
        "lowkey:requests_total{model_name=\"tales\",mechanism=\"taylorshift\"} 0\n",
        "lowkey:refused_requests_total{model_name=\"tales\",code=\"RESOURCE_EXHAUSTED\"} 0\n",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"tales\"} 0\n",
        "# TYPE vllm:inter_token_latency_seconds histogram\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(MetricsTest, ShowsWhatOthersCount) {
  Metrics metrics("tales");
  metrics.WatchCounter("lowkey:log_lines_dropped_total", "Lines.", [] { return 7; });
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("lowkey:log_lines_dropped_total{model_name=\"tales\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE lowkey:log_lines_dropped_total counter\n"));
}

TEST(MetricsTest, ShowsTheNetworkWhileItIsWatched) {
  Metrics metrics("m");
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("lowkey:connections")));
  NetworkStats stats;
  stats.n_http1 = 1;
  stats.n_http2 = 2;
  stats.n_undecided = 3;
  stats.n_opened = 40;
  stats.n_streams = 5;
  stats.body_bytes = 600;
  stats.answer_bytes = 700;
  stats.n_waiting_work = 8;
  metrics.WatchNetwork([&stats] { return stats; });
  for (const char* line :
       {"lowkey:connections{model_name=\"m\",protocol=\"http1\"} 1\n",
        "lowkey:connections{model_name=\"m\",protocol=\"http2\"} 2\n",
        "lowkey:connections{model_name=\"m\",protocol=\"undecided\"} 3\n",
        "lowkey:connections_total{model_name=\"m\"} 40\n", "lowkey:streams{model_name=\"m\"} 5\n",
        "lowkey:body_bytes{model_name=\"m\"} 600\n", "lowkey:answer_bytes{model_name=\"m\"} 700\n",
        "lowkey:worker_queue{model_name=\"m\"} 8\n"}) {
    EXPECT_THAT(metrics.Text(), HasSubstr(line));
  }
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("certificate")));
  stats.certificate_end = absl::FromUnixSeconds(1900000000);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("lowkey:tls_certificate_expires_seconds{model_name=\"m\"} 1900000000\n"));
  metrics.WatchNetwork(nullptr);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("lowkey:connections")));
}

TEST(MetricsTest, OneStateIsTheServers) {
  Metrics metrics("m");
  metrics.SetState(ServingState::kDraining);
  for (const char* line : {"lowkey:serving_state{model_name=\"m\",state=\"loading\"} 0\n",
                           "lowkey:serving_state{model_name=\"m\",state=\"serving\"} 0\n",
                           "lowkey:serving_state{model_name=\"m\",state=\"draining\"} 1\n"}) {
    EXPECT_THAT(metrics.Text(), HasSubstr(line));
  }
}

TEST(MetricsTest, AnswersAreCountedByApiAndCode) {
  Metrics metrics("m");
  metrics.CountHttpRequest("grpc", "OK");
  metrics.CountHttpRequest("grpc", "OK");
  metrics.CountHttpRequest("openai", "429");
  for (const char* line :
       {"lowkey:http_requests_total{model_name=\"m\",api=\"grpc\",code=\"OK\"} 2\n",
        "lowkey:http_requests_total{model_name=\"m\",api=\"openai\",code=\"429\"} 1\n"}) {
    EXPECT_THAT(metrics.Text(), HasSubstr(line));
  }
}

TEST(MetricsTest, LoopDelaysAreAHistogram) {
  Metrics metrics("m");
  metrics.ObserveLoopDelay(absl::Milliseconds(3));
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("lowkey:loop_delay_seconds_bucket{model_name=\"m\",le=\"0.002\"} 0"));
  EXPECT_THAT(text, HasSubstr("lowkey:loop_delay_seconds_bucket{model_name=\"m\",le=\"0.005\"} 1"));
}

TEST(MetricsTest, WithoutAnEngineItsGaugesAreAbsent) {
  EXPECT_THAT(Metrics("tales").Text(), Not(HasSubstr("vllm:num_requests_running")));
}

TEST(MetricsTest, EngineGaugesAreWhatItSaysNow) {
  FakeEngine engine;
  Metrics metrics("tales");
  metrics.SetEngine(&engine);
  EXPECT_THAT(metrics.Text(),
              HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"tales\"} 0\n"));
  ASSERT_TRUE(engine.Submit(EngineRequest(), std::make_unique<DeafSink>()).ok());
  EXPECT_THAT(metrics.Text(),
              HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"tales\"} 1\n"));
  // No cache at all is not a division by zero.
  EXPECT_THAT(metrics.Text(),
              HasSubstr("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tales\"} 0\n"));
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
  for (const char* line :
       {"finished_reason=\"stop\"} 2\n", "finished_reason=\"abort\"} 1\n",
        "finished_reason=\"length\"} 0\n", "finished_reason=\"error\"} 1\n",
        "requests_total{model_name=\"m\",mechanism=\"standard\"} 1\n",
        "generated_tokens_total{model_name=\"m\",mechanism=\"standard\"} 18\n",
        "generated_tokens_total{model_name=\"m\",mechanism=\"lasso\"} 1\n",
        "vllm:e2e_request_latency_seconds_sum{engine=\"0\",model_name=\"m\"} 7\n",
        "vllm:request_queue_time_seconds_count{engine=\"0\",model_name=\"m\"} 2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(MetricsTest, TokensOfARequestAreCountedUpToTheModelsContext) {
  FakeEngine engine;  // a context of 2,048
  Metrics metrics("m");
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("vllm:request_prompt_tokens")));
  metrics.SetEngine(&engine);
  GenerationResult result = Ended(
      Mechanism::kStandard, {{FinishReason::kLength, {}, 5}, {FinishReason::kStopToken, {}, 11}});
  result.engine.n_prompt_tokens = 150;
  result.engine.n_cached_tokens = 128;
  result.max_new_tokens = 64;
  metrics.ObserveEnd(result, absl::Seconds(3));
  const std::string text = metrics.Text();
  const std::string labels = "{engine=\"0\",model_name=\"m\"";
  for (const auto& [name, n, sum] : std::initializer_list<std::tuple<const char*, int, int>>{
           {"request_prompt_tokens", 1, 150},
           {"request_prefill_kv_computed_tokens", 1, 22},
           {"request_generation_tokens", 2, 16},
           {"request_max_num_generation_tokens", 1, 11},
           {"request_params_max_tokens", 1, 64},
           {"request_params_n", 1, 2}}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("vllm:", name, "_count", labels, "} ", n, "\n")));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("vllm:", name, "_sum", labels, "} ", sum, "\n")));
  }
  const std::string bucket = absl::StrCat("vllm:request_prompt_tokens_bucket", labels);
  EXPECT_THAT(text, HasSubstr(bucket + ",le=\"100\"} 0\n"));
  EXPECT_THAT(text, HasSubstr(bucket + ",le=\"200\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(bucket + ",le=\"2000\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr(bucket + ",le=\"5000\"}")));
}

TEST(MetricsTest, PhasesOfARequestAreTimed) {
  Metrics metrics("m");
  GenerationResult result = Ended(
      Mechanism::kStandard, {{FinishReason::kLength, {}, 5}, {FinishReason::kStopToken, {}, 11}});
  result.engine.timings = {.queue_us = 1'000'000,
                           .prefill_us = 2'000'000,
                           .decode_us = 30'000'000,
                           .ttft_us = 3'000'000};
  metrics.ObserveEnd(result, absl::Seconds(33));
  result.choices = {{FinishReason::kLength, {}, 1}};  // there is no time between its tokens
  metrics.ObserveEnd(result, absl::Seconds(33));
  result.engine.timings = {};  // it never gave a token
  metrics.ObserveEnd(result, absl::Seconds(1));
  const std::string text = metrics.Text();
  const std::string labels = "{engine=\"0\",model_name=\"m\"} ";
  for (const auto& [name, n, sum] : std::initializer_list<std::tuple<const char*, int, int>>{
           {"request_queue_time_seconds", 2, 2},
           {"request_prefill_time_seconds", 2, 4},
           {"request_decode_time_seconds", 2, 60},
           {"request_inference_time_seconds", 2, 64},
           {"request_time_per_output_token_seconds", 1, 3},
           {"e2e_request_latency_seconds", 3, 67}}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("vllm:", name, "_count", labels, n, "\n")));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("vllm:", name, "_sum", labels, sum, "\n")));
  }
}

TEST(MetricsTest, RequestThatNeverBeganHasNoQueueTime) {
  Metrics metrics("m");
  GenerationResult result = Ended(Mechanism::kStandard, {{FinishReason::kCancelled, {}, 0}});
  result.engine.timings = {};
  metrics.ObserveEnd(result, absl::Seconds(1));
  EXPECT_THAT(metrics.Text(),
              HasSubstr("vllm:request_queue_time_seconds_count{engine=\"0\",model_name=\"m\"} 0"));
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
  EXPECT_THAT(
      text, HasSubstr("first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.02\"} 0\n"));
  EXPECT_THAT(
      text, HasSubstr("first_token_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.04\"} 1\n"));
  EXPECT_THAT(
      text,
      HasSubstr("inter_token_latency_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.15\"} 0"));
  EXPECT_THAT(
      text,
      HasSubstr("inter_token_latency_seconds_bucket{engine=\"0\",model_name=\"m\",le=\"0.3\"} 1"));
}

std::string TextOf(const EngineStats& stats) {
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, EngineFamilies(stats, "m"));
  return text.str();
}

TEST(EngineFamiliesTest, StepsAreAHistogramOfTheirRows) {
  EngineStats stats;
  stats.n_rows = 70'000;
  stats.n_steps_by_rows[0] = 5;      // of one row
  stats.n_steps_by_rows[4] = 2;      // up to 64
  stats.n_steps_by_rows.back() = 1;  // over 16,384
  const std::string text = TextOf(stats);
  const std::string name = "vllm:iteration_tokens_total", labels = "{engine=\"0\",model_name=\"m\"";
  for (const auto& [bound, n] : std::initializer_list<std::pair<const char*, int>>{
           {"1", 5}, {"32", 5}, {"64", 7}, {"16384", 7}, {"+Inf", 8}}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(name, "_bucket", labels, ",le=\"", bound, "\"} ", n)));
  }
  EXPECT_THAT(text, HasSubstr(absl::StrCat(name, "_count", labels, "} 8\n")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat(name, "_sum", labels, "} 70000\n")));
}

TEST(EngineFamiliesTest, TheCacheAndTheQueueHaveVllmsNames) {
  EngineStats stats;
  stats.n_prefix_queries = 9;
  stats.n_prefix_tokens = 4;
  stats.page_tokens = 64;
  stats.keeps_prefixes = true;
  stats.dtype = "int8";
  stats.n_refused_by_bound = {1, 2, 3};
  const std::string text = TextOf(stats);
  for (const char* line :
       {"vllm:prefix_cache_queries_total{engine=\"0\",model_name=\"m\"} 9\n",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"m\"} 4\n",
        "vllm:prompt_tokens_cached_total{engine=\"0\",model_name=\"m\"} 4\n",
        "rejections_total{model_name=\"m\",reason=\"max_num_queued_reqs\"} 1\n",
        "rejections_total{model_name=\"m\",reason=\"max_num_queued_tokens\"} 2\n",
        "rejections_total{model_name=\"m\",reason=\"max_wait\"} 3\n",
        "vllm:cache_config_info{block_size=\"64\",cache_dtype=\"bfloat16\",enable_prefix_caching="
        "\"True\","}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(TokenBoundsTest, GoUpToTheContext) {
  EXPECT_EQ(TokenBounds(1), (std::vector<double>{1}));
  EXPECT_EQ(TokenBounds(100), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(TokenBounds(2048).back(), 2000);
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
              HasSubstr("inter_token_latency_seconds_count{engine=\"0\",model_name=\"m\"} 4000"));
  EXPECT_THAT(metrics.Text(), HasSubstr("code=\"UNAVAILABLE\"} 4000\n"));
}

}  // namespace
}  // namespace lowkey

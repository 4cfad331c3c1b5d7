#include "server/trace/request_spans.h"

#include <gtest/gtest.h>

#include <map>

namespace lowkey {
namespace {

const TraceContext kCaller = {{1, 2, 3}, {4, 5, 6}, true, "a=1"};

TracedRequest Generated() {
  TracedRequest request;
  request.trace = StartTrace(kCaller, 0);
  request.method = "GenerateStream";
  request.tenant = "ours";
  request.start = absl::FromUnixSeconds(100);
  request.end = request.start + absl::Seconds(2);
  GenerationResult& result = request.result.emplace();
  result.request_id = "r1";
  result.model = "tales";
  result.max_new_tokens = 64;
  result.submitted = request.start + absl::Milliseconds(10);
  result.choices = {{FinishReason::kLength, {}, 5}, {FinishReason::kStoppedBySink, "x", 2}};
  result.engine.n_prompt_tokens = 30;
  result.engine.n_cached_tokens = 20;
  result.engine.timings = {
      .queue_us = 1500, .prefill_us = 20'000, .decode_us = 300'000, .ttft_us = 21'500};
  result.engine.attention.mechanism = Mechanism::kAtp;
  result.engine.attention.rank = 64;
  return request;
}

std::map<std::string, AttributeValue> AttributesOf(const Span& span) {
  std::map<std::string, AttributeValue> attributes;
  for (const SpanAttribute& attribute : span.attributes) {
    EXPECT_TRUE(attributes.emplace(attribute.key, attribute.value).second) << attribute.key;
  }
  return attributes;
}

TEST(StartTraceTest, ContinuesTheCallersTraceAndDecision) {
  for (const bool is_sampled : {true, false}) {
    TraceContext caller = kCaller;
    caller.is_sampled = is_sampled;
    for (const double ratio : {0.0, 1.0}) {
      const RequestTrace trace = StartTrace(caller, ratio);
      EXPECT_EQ(trace.trace_id, caller.trace_id);
      EXPECT_EQ(trace.parent_id, caller.parent_id);
      EXPECT_EQ(trace.state, "a=1");
      EXPECT_EQ(trace.is_sampled, is_sampled);
      EXPECT_NE(trace.span_id, caller.parent_id);
    }
  }
}

TEST(StartTraceTest, BeginsTracesOfTheirOwnInTheAskedShare) {
  int n_sampled = 0;
  std::map<TraceId, int> ids;
  for (int i = 0; i < 4000; ++i) {
    const RequestTrace trace = StartTrace(std::nullopt, 0.25);
    EXPECT_FALSE(trace.parent_id.has_value());
    n_sampled += trace.is_sampled ? 1 : 0;
    ++ids[trace.trace_id];
  }
  EXPECT_EQ(ids.size(), 4000u);
  EXPECT_NEAR(n_sampled, 1000, 150);
  EXPECT_TRUE(StartTrace(std::nullopt, 1).is_sampled);
  EXPECT_FALSE(StartTrace(std::nullopt, 0).is_sampled);
}

TEST(RequestSpansTest, PhasesFollowEachOtherUnderTheServersSpan) {
  const TracedRequest request = Generated();
  const std::vector<Span> spans = SpansOf(request);
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(NumSpans(request), 4u);
  EXPECT_EQ(spans[0].name, "GenerateStream");
  EXPECT_EQ(spans[0].kind, SpanKind::kServer);
  EXPECT_EQ(spans[0].parent_id, kCaller.parent_id);
  EXPECT_TRUE(spans[0].is_parent_remote);
  EXPECT_EQ(spans[0].start, request.start);
  EXPECT_EQ(spans[0].end, request.end);
  const char* const names[] = {"", "queue", "prefill", "decode"};
  const int64_t took_us[] = {0, 1500, 20'000, 300'000};
  absl::Time at = request.result->submitted;
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(spans[i].name, names[i]);
    EXPECT_EQ(spans[i].kind, SpanKind::kInternal);
    EXPECT_EQ(spans[i].trace_id, kCaller.trace_id);
    EXPECT_EQ(spans[i].trace_state, "a=1");
    EXPECT_EQ(spans[i].parent_id, spans[0].id);
    EXPECT_FALSE(spans[i].is_parent_remote);
    EXPECT_EQ(spans[i].start, at);
    EXPECT_EQ(spans[i].end - spans[i].start, absl::Microseconds(took_us[i]));
    at = spans[i].end;
  }
}

TEST(RequestSpansTest, TheServersSpanTellsOfTheGeneration) {
  auto attributes = AttributesOf(SpansOf(Generated())[0]);
  const std::map<std::string, AttributeValue> expected = {
      {"rpc.system.name", std::string("grpc")},
      {"rpc.method", std::string("GenerateStream")},
      {"rpc.response.status_code", std::string("OK")},
      {"gen_ai.operation.name", std::string("text_completion")},
      {"gen_ai.request.model", std::string("tales")},
      {"gen_ai.request.max_tokens", int64_t{64}},
      {"gen_ai.request.choice.count", int64_t{2}},
      {"gen_ai.response.id", std::string("r1")},
      {"gen_ai.response.finish_reasons", std::vector<std::string>{"length", "stop"}},
      {"gen_ai.usage.input_tokens", int64_t{30}},
      {"gen_ai.usage.output_tokens", int64_t{7}},
      {"gen_ai.usage.cache_read.input_tokens", int64_t{20}},
      {"lowkey.attention.mechanism", std::string("atp")},
      {"lowkey.attention.rank", int64_t{64}},
      {"lowkey.queue_ms", 1.5},
      {"lowkey.ttft_ms", 21.5},
      {"lowkey.tenant", std::string("ours")}};
  for (const auto& [key, value] : expected) EXPECT_EQ(attributes[key], value) << key;
  EXPECT_FALSE(attributes.contains("error.type"));
}

TEST(RequestSpansTest, ARequestWithoutATokenHasNoPhasesAfterItsQueue) {
  TracedRequest request = Generated();
  request.result->engine.timings = {.queue_us = 1500};
  const std::vector<Span> spans = SpansOf(request);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(NumSpans(request), 2u);
  EXPECT_EQ(spans[1].name, "queue");
  EXPECT_FALSE(AttributesOf(spans[0]).contains("lowkey.ttft_ms"));
}

TEST(RequestSpansTest, ARefusedRequestHasItsStatusAndIsAnErrorIfTheServerIsToBlame) {
  TracedRequest request;
  request.trace = StartTrace(std::nullopt, 1);
  request.method = "/v1/completions";
  request.code = absl::StatusCode::kInvalidArgument;
  request.message = "n: 9, expected 1..8";
  std::vector<Span> spans = SpansOf(request);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(NumSpans(request), 1u);
  EXPECT_FALSE(spans[0].parent_id.has_value());
  EXPECT_FALSE(spans[0].error.has_value());
  auto attributes = AttributesOf(spans[0]);
  EXPECT_EQ(attributes["url.path"], AttributeValue(std::string("/v1/completions")));
  EXPECT_EQ(attributes["error.type"], AttributeValue(std::string("INVALID_ARGUMENT")));
  EXPECT_FALSE(attributes.contains("rpc.method"));
  request.method = "openai/chat";
  attributes = AttributesOf(SpansOf(request)[0]);
  EXPECT_EQ(attributes["lowkey.api"], AttributeValue(std::string("openai/chat")));
  EXPECT_FALSE(attributes.contains("rpc.method"));
  request.code = absl::StatusCode::kUnavailable;
  spans = SpansOf(request);
  EXPECT_EQ(spans[0].error, "n: 9, expected 1..8");
}

}  // namespace
}  // namespace lowkey

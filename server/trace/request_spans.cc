#include "server/trace/request_spans.h"

#include <algorithm>
#include <random>
#include <utility>

#include "engine/config/attention_options.h"
#include "engine/config/enum_names.h"

namespace lowkey {
namespace {

// OpenTelemetry's usual names of the finish reasons, by FinishReason.
constexpr EnumNames kFinishNames = {"finish reason",
                                    {"stop", "length", "stop", "cancelled", "deadline", "error"}};

template <typename Id>
Id RandomId() {
  // The ids need not be secret, and asking the system for each would cost more than making it.
  thread_local std::mt19937_64 random = [] {
    std::random_device device;
    std::seed_seq seed = {device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  Id id = {};
  while (std::all_of(id.begin(), id.end(), [](uint8_t byte) { return byte == 0; })) {
    for (uint8_t& byte : id) byte = static_cast<uint8_t>(random());
  }
  return id;
}

// Whether a trace of this id is among a share of all: every process decides alike.
bool IsWithin(const TraceId& id, double ratio) {
  uint64_t number = 0;
  for (size_t i = 9; i < id.size(); ++i) number = number << 8 | id[i];  // the 56 random bits
  return static_cast<double>(number) < ratio * static_cast<double>(uint64_t{1} << 56);
}

// The codes that a gRPC server is to blame for, by the conventions for RPC spans.
bool IsServersError(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

double Milliseconds(int64_t microseconds) { return static_cast<double>(microseconds) * 1e-3; }

void AddCall(const TracedRequest& request, std::vector<SpanAttribute>& to) {
  if (request.method.starts_with('/')) {
    to.push_back({"url.path", request.method});
  } else if (request.method.find('/') != std::string::npos) {
    to.push_back({"lowkey.api", request.method});
  } else {
    to.push_back({"rpc.system.name", std::string("grpc")});
    to.push_back({"rpc.method", request.method});
  }
  const std::string code = absl::StatusCodeToString(request.code);
  to.push_back({"rpc.response.status_code", code});
  if (request.code != absl::StatusCode::kOk) to.push_back({"error.type", code});
  if (!request.tenant.empty()) to.push_back({"lowkey.tenant", request.tenant});
}

void AddUsage(const GenerationResult& result, std::vector<SpanAttribute>& to) {
  const FinalEvent& event = result.engine;
  std::vector<std::string> reasons;
  int64_t n_generated = 0;
  for (const ChoiceFinish& choice : result.choices) {
    reasons.emplace_back(FindName(kFinishNames, static_cast<int32_t>(choice.reason)));
    n_generated += choice.n_generated;
  }
  const auto n_choices = static_cast<int64_t>(result.choices.size());
  to.push_back(
      {"gen_ai.operation.name", std::string(result.is_conversation ? "chat" : "text_completion")});
  to.push_back({"gen_ai.provider.name", std::string("lowkey")});
  to.push_back({"gen_ai.request.model", result.model});
  to.push_back({"gen_ai.request.max_tokens", int64_t{result.max_new_tokens}});
  if (n_choices != 1) to.push_back({"gen_ai.request.choice.count", n_choices});
  to.push_back({"gen_ai.response.model", result.model});
  to.push_back({"gen_ai.response.id", result.request_id});
  to.push_back({"gen_ai.response.finish_reasons", std::move(reasons)});
  to.push_back({"gen_ai.usage.input_tokens", int64_t{event.n_prompt_tokens}});
  to.push_back({"gen_ai.usage.output_tokens", n_generated});
  to.push_back({"gen_ai.usage.cache_read.input_tokens", int64_t{event.n_cached_tokens}});
  to.push_back({"lowkey.queue_ms", Milliseconds(event.timings.queue_us)});
  if (event.timings.ttft_us == 0) return;
  to.push_back({"lowkey.ttft_ms", Milliseconds(event.timings.ttft_us)});
  to.push_back(
      {"gen_ai.response.time_to_first_chunk", static_cast<double>(event.timings.ttft_us) * 1e-6});
}

void AddAttention(const FinalEvent& event, std::vector<SpanAttribute>& to) {
  const AttentionReport& attention = event.attention;
  to.push_back({"lowkey.attention.mechanism", std::string(MechanismName(attention.mechanism))});
  to.push_back({"lowkey.attention.is_approximate", attention.is_approximate});
  to.push_back({"lowkey.attention.reason", attention.reason});
  if (attention.mechanism == Mechanism::kAtp) {
    to.push_back({"lowkey.attention.rank", int64_t{attention.rank}});
  }
  to.push_back({"lowkey.cache.peak_bytes", attention.peak_cache_bytes});
  if (event.n_drafted_tokens == 0) return;
  to.push_back({"lowkey.drafted_tokens", int64_t{event.n_drafted_tokens}});
  to.push_back({"lowkey.accepted_tokens", int64_t{event.n_accepted_tokens}});
}

// Appends a child of `parent` that takes up where the last phase ended.
void AddPhase(const Span& parent, const std::string& name, absl::Time& at, int64_t took_us,
              std::vector<SpanAttribute> attributes, std::vector<Span>& to) {
  Span span;
  span.trace_id = parent.trace_id;
  span.trace_state = parent.trace_state;
  span.id = RandomId<SpanId>();
  span.parent_id = parent.id;
  span.name = name;
  span.start = at;
  span.end = at += absl::Microseconds(took_us);
  span.attributes = std::move(attributes);
  to.push_back(std::move(span));
}

bool HasToken(const TracedRequest& request) {
  return request.result.has_value() && request.result->engine.timings.ttft_us > 0;
}

}  // namespace

RequestTrace StartTrace(const std::optional<TraceContext>& caller, double root_ratio) {
  RequestTrace trace;
  trace.span_id = RandomId<SpanId>();
  if (caller.has_value()) {
    trace.trace_id = caller->trace_id;
    trace.parent_id = caller->parent_id;
    trace.state = caller->state;
    trace.is_sampled = caller->is_sampled;
  } else {
    trace.trace_id = RandomId<TraceId>();
    trace.is_sampled = IsWithin(trace.trace_id, root_ratio);
  }
  return trace;
}

std::vector<Span> SpansOf(const TracedRequest& request) {
  Span server;
  server.trace_id = request.trace.trace_id;
  server.id = request.trace.span_id;
  server.parent_id = request.trace.parent_id;
  server.is_parent_remote = request.trace.parent_id.has_value();
  server.trace_state = request.trace.state;
  server.kind = SpanKind::kServer;
  server.name = request.method;
  server.start = request.start;
  server.end = request.end;
  AddCall(request, server.attributes);
  if (IsServersError(request.code)) server.error = request.message;
  std::vector<Span> spans;
  spans.push_back(std::move(server));
  if (!request.result.has_value()) return spans;
  AddUsage(*request.result, spans[0].attributes);
  AddAttention(request.result->engine, spans[0].attributes);

  const Span parent = spans[0];
  const FinalEvent& event = request.result->engine;
  absl::Time at = request.result->submitted;
  AddPhase(parent, "queue", at, event.timings.queue_us, {}, spans);
  if (!HasToken(request)) return spans;
  AddPhase(parent, "prefill", at, event.timings.prefill_us,
           {{"lowkey.prompt_tokens", int64_t{event.n_prompt_tokens}},
            {"lowkey.cached_tokens", int64_t{event.n_cached_tokens}}},
           spans);
  AddPhase(parent, "decode", at, event.timings.decode_us, {}, spans);
  return spans;
}

size_t NumSpans(const TracedRequest& request) {
  if (!request.result.has_value()) return 1;
  return HasToken(request) ? 4 : 2;
}

}  // namespace lowkey

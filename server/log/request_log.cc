#include "server/log/request_log.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/config/enum_names.h"
#include "server/trace/otlp_exporter.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxMethodBytes = 128;
constexpr size_t kMaxLoggedBytes = 512;

// The names in the log, by FinishReason.
constexpr EnumNames kFinishNames = {
    "finish reason", {"stop_token", "length", "stop_text", "cancelled", "deadline", "error"}};

void AddResult(const GenerationResult& result, Json& line) {
  const FinalEvent& event = result.engine;
  line["request_id"] = result.request_id;
  line["model"] = result.model;
  line["mechanism"] = std::string(MechanismName(event.attention.mechanism));
  if (event.attention.mechanism == Mechanism::kAtp) line["rank"] = event.attention.rank;
  line["prompt_tokens"] = event.n_prompt_tokens;
  line["cached_tokens"] = event.n_cached_tokens;
  int64_t n_generated = 0;
  Json finish = Json::array();
  for (const ChoiceFinish& choice : result.choices) {
    n_generated += choice.n_generated;
    finish.push_back(std::string(FindName(kFinishNames, static_cast<int32_t>(choice.reason))));
  }
  line["generated_tokens"] = n_generated;
  line["drafted_tokens"] = event.n_drafted_tokens;
  line["accepted_tokens"] = event.n_accepted_tokens;
  line["finish"] = std::move(finish);
  line["queue_us"] = event.timings.queue_us;
  line["ttft_us"] = event.timings.ttft_us;
  line["peak_cache_bytes"] = event.attention.peak_cache_bytes;
}

// Messages about a refused request name fields and numbers, and may quote what a client wrote; a
// chat template writes its own. Returns the message without such text.
std::string WithoutQuotes(const std::string& message) {
  if (message.starts_with("chat: ")) return "chat: refused";
  const size_t begin = message.find('"'), end = message.rfind('"');
  if (begin == end) return message.substr(0, std::min(begin, kMaxLoggedBytes));
  return absl::StrCat(message.substr(0, std::min(begin, kMaxLoggedBytes)), "\"...\"",
                      message.substr(end + 1, kMaxLoggedBytes));
}

}  // namespace

std::string RequestLogLine(const RequestLogEntry& entry, const std::optional<TraceId>& trace_id) {
  Json line;
  line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", entry.ended, absl::UTCTimeZone());
  line["event"] = "request";
  line["method"] = entry.method.substr(0, kMaxMethodBytes);
  if (!entry.tenant.empty()) line["tenant"] = entry.tenant;
  line["status"] = absl::StatusCodeToString(entry.status.code());
  if (!entry.status.message().empty()) {
    line["message"] = WithoutQuotes(std::string(entry.status.message()));
  }
  line["duration_us"] = absl::ToInt64Microseconds(entry.duration);
  if (trace_id.has_value()) line["trace_id"] = HexOf(*trace_id);
  if (!entry.request_id.empty()) line["request_id"] = entry.request_id;
  if (entry.result.has_value()) AddResult(*entry.result, line);
  // Clients choose names: bytes that are not UTF-8 must not stop the log.
  const auto text = [&line] { return line.dump(-1, ' ', false, Json::error_handler_t::replace); };
  std::string result = text();
  for (const char* name : {"message", "method", "request_id", "model"}) {
    if (result.size() < LineLog::kMaxLineBytes) break;
    if (line.erase(name) > 0) result = text();
  }
  return result;
}

void RequestLog::Write(const RequestLogEntry& entry) {
  if (spans_ == nullptr) return WriteWithoutSpan(entry);
  const RequestTrace trace = StartTrace(entry.trace, spans_->root_ratio());
  WriteLine(entry, trace.trace_id);
  if (!trace.is_sampled) return;
  spans_->Add({.trace = trace,
               .method = entry.method.substr(0, kMaxMethodBytes),
               .tenant = entry.tenant,
               .code = entry.status.code(),
               .message = WithoutQuotes(std::string(entry.status.message())),
               .start = entry.ended - entry.duration,
               .end = entry.ended,
               .result = entry.result});
}

void RequestLog::WriteWithoutSpan(const RequestLogEntry& entry) {
  std::optional<TraceId> trace_id;
  if (entry.trace.has_value()) trace_id = entry.trace->trace_id;
  WriteLine(entry, trace_id);
}

void RequestLog::WriteLine(const RequestLogEntry& entry, const std::optional<TraceId>& trace_id) {
  if (lines_ != nullptr) lines_->Write(RequestLogLine(entry, trace_id));
}

}  // namespace lowkey

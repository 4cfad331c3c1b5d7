#ifndef LOWKEY_SERVER_TRACE_SPAN_H_
#define LOWKEY_SERVER_TRACE_SPAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "server/request/trace_context.h"

namespace lowkey {

// A value of OpenTelemetry's attributes.
using AttributeValue = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;

struct SpanAttribute {
  std::string key;
  AttributeValue value;
};

enum class SpanKind { kInternal = 1, kServer = 2 };  // OTLP's numbers

// One operation of a trace, as OTLP knows it.
struct Span {
  TraceId trace_id = {};
  SpanId id = {};
  std::optional<SpanId> parent_id = {};  // absent: the span begins the trace
  bool is_parent_remote = false;         // the parent belongs to another process
  std::string trace_state = {};
  SpanKind kind = SpanKind::kInternal;
  std::string name = {};
  absl::Time start, end;  // dates
  std::vector<SpanAttribute> attributes = {};
  std::optional<std::string> error = {};  // set: the operation failed; the text may be empty
};

// The process that the spans are of.
struct TraceResource {
  std::vector<SpanAttribute> attributes;  // service.name and others
  std::string scope_name, scope_version;  // of the code that makes the spans
};

// Returns an ExportTraceServiceRequest in OTLP's JSON encoding. Bytes that are not UTF-8 are
// replaced.
std::string OtlpJson(const TraceResource& resource, const std::vector<Span>& spans);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TRACE_SPAN_H_

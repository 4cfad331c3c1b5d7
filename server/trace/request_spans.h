#ifndef LOWKEY_SERVER_TRACE_REQUEST_SPANS_H_
#define LOWKEY_SERVER_TRACE_REQUEST_SPANS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/request/generation.h"
#include "server/request/trace_context.h"
#include "server/trace/span.h"

namespace lowkey {

// The place of a request in a trace: the caller's, or a trace of its own.
struct RequestTrace {
  TraceId trace_id = {};
  SpanId span_id = {};  // of the server's span for the request
  std::optional<SpanId> parent_id = {};
  std::string state = {};
  bool is_sampled = false;
};

// Continues the caller's trace and its decision to sample, or begins a trace, which is sampled with
// the probability `root_ratio`. Thread-safe.
RequestTrace StartTrace(const std::optional<TraceContext>& caller, double root_ratio);

// A request that has ended, as its spans tell of it.
struct TracedRequest {
  RequestTrace trace;
  std::string method;  // "GenerateStream"; of an HTTP API its name ("openai/chat") or its path
  std::string tenant;  // empty: the server has no tenants
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string message;                     // of an error, without text of the client's
  absl::Time start, end;                   // dates
  std::optional<GenerationResult> result;  // absent: nothing was generated
};

// Returns the server's span for the request, then its queue, prefill and decode as far as it came.
// Names of attributes are those of OpenTelemetry's semantic conventions for RPC and generative AI,
// or begin with "lowkey.".
std::vector<Span> SpansOf(const TracedRequest& request);

// Returns the number of those spans.
size_t NumSpans(const TracedRequest& request);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TRACE_REQUEST_SPANS_H_

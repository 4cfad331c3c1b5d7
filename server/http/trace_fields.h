#ifndef LOWKEY_SERVER_HTTP_TRACE_FIELDS_H_
#define LOWKEY_SERVER_HTTP_TRACE_FIELDS_H_

#include <optional>

#include "server/http/exchange.h"
#include "server/request/trace_context.h"

namespace lowkey {

// Returns the trace context of a request's `traceparent` and `tracestate` fields; gRPC's metadata
// are such fields too. Nullopt unless there is exactly one valid `traceparent`. A `tracestate` that
// is not valid is dropped by itself, as W3C's Trace Context says.
std::optional<TraceContext> ReadTraceContext(const HttpHead& head);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_TRACE_FIELDS_H_

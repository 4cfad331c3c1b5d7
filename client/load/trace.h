#ifndef LOWKEY_CLIENT_LOAD_TRACE_H_
#define LOWKEY_CLIENT_LOAD_TRACE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lowkey {

inline constexpr size_t kMaxTraceBytes = size_t{64} << 20;

// One request of a recorded load.
struct TraceRow {
  double arrival_s = 0;  // counted from the trace's beginning
  int32_t n_prompt_tokens = 0, n_output_tokens = 0;
};

// Parses a trace with one request per line in order of arrival: "0.25,512,64" (after an optional
// line of names) or {"arrival_s": 0.25, "prompt_tokens": 512, "output_tokens": 64}. Empty lines do
// not count. INVALID_ARGUMENT names `name`, the line and the expectation for a missing field, a
// field out of range (arrivals 0..86,400, tokens 1..kMaxLength), descending arrivals, no request.
absl::StatusOr<std::vector<TraceRow>> ParseTrace(std::string_view text, const std::string& name);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_TRACE_H_

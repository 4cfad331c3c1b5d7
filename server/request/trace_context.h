#ifndef LOWKEY_SERVER_REQUEST_TRACE_CONTEXT_H_
#define LOWKEY_SERVER_REQUEST_TRACE_CONTEXT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"

namespace lowkey {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

// Returns the bytes in lower-case hexadecimal digits.
std::string HexOf(absl::Span<const uint8_t> bytes);

// The caller's place in a distributed trace, as W3C's Trace Context (level 2) states it.
struct TraceContext {
  bool operator==(const TraceContext&) const = default;

  TraceId trace_id = {};    // not all zero
  SpanId parent_id = {};    // the caller's span; not all zero
  bool is_sampled = false;  // the caller records its span
  std::string state = {};   // the members of `tracestate`, joined by commas; may be empty
};

inline constexpr size_t kMaxTraceStateBytes = 512;
inline constexpr size_t kMaxTraceStateMembers = 32;

// Parses the value of a `traceparent` field; `state` is left empty. Nullopt unless the value is
// valid: lower-case hexadecimal digits, neither id all zero, exactly 55 bytes in version 00, more
// fields only in a later version, and not version ff.
std::optional<TraceContext> ParseTraceParent(std::string_view value);

// Returns the members of a `tracestate` value without the blanks and the empty members around them.
// Nullopt unless every member is valid, no key occurs twice, and at most kMaxTraceStateMembers
// members of at most kMaxTraceStateBytes in all are left.
std::optional<std::string> ParseTraceState(std::string_view value);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_TRACE_CONTEXT_H_

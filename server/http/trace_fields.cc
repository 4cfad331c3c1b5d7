#include "server/http/trace_fields.h"

#include <string>
#include <string_view>

namespace lowkey {

std::optional<TraceContext> ReadTraceContext(const HttpHead& head) {
  const std::optional<std::string_view> parent = head.One("traceparent");
  if (!parent.has_value()) return std::nullopt;
  std::optional<TraceContext> context = ParseTraceParent(*parent);
  if (!context.has_value()) return std::nullopt;
  std::string states;
  for (const std::string_view state : head.All("tracestate")) {
    if (!states.empty()) states.push_back(',');
    states.append(state);
  }
  context->state = ParseTraceState(states).value_or(std::string());
  return context;
}

}  // namespace lowkey

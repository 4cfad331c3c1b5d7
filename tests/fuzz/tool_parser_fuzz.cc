// One input is a byte for the format, a byte for the cuts, and a model's answer. The events do not
// depend on the cuts, content is never more than the answer, and a call has a name and begins once.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/base/status_macros.h"
#include "tests/server/api/openai/tools/joined_events.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lowkey::ToolEvent;
  if (size < 2) return 0;
  const auto format = static_cast<lowkey::ToolFormat>(data[0] % 4);
  const lowkey::ToolParserOptions options = {.begins_in_reasoning = data[0] >= 128};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const std::vector<ToolEvent> whole = lowkey::JoinedEvents(format, text, {}, options);
  std::vector<size_t> cuts;
  uint32_t random = data[1];
  for (size_t at = 0; at < text.size(); at += 1 + (random >> 16) % 8) {
    cuts.push_back(at);
    random = random * 1103515245 + 12345;
  }
  LK_CHECK(lowkey::JoinedEvents(format, text, cuts, options) == whole);

  size_t n_bytes = 0;
  int n_calls = 0;
  for (const ToolEvent& event : whole) {
    const bool is_text =
        event.kind == ToolEvent::Kind::kContent || event.kind == ToolEvent::Kind::kReasoning;
    if (is_text) n_bytes += event.text.size();
    if (event.kind == ToolEvent::Kind::kCallBegin) {
      LK_CHECK(event.index == n_calls++ && !event.name.empty());
    }
    if (event.kind == ToolEvent::Kind::kArguments) LK_CHECK(event.index == n_calls - 1);
  }
  LK_CHECK(n_bytes <= text.size());
  // Without a call or reasoning nothing is taken away.
  const bool is_plain = whole.empty() || (whole.size() == 1 && n_bytes > 0 &&
                                          whole[0].kind == ToolEvent::Kind::kContent);
  const bool has_think = options.begins_in_reasoning || text.find("<think>") != text.npos;
  if (is_plain && !has_think) LK_CHECK(n_bytes == text.size());
  return 0;
}

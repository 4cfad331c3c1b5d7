// One input is one chat template. Whatever is accepted must render, or refuse, a conversation
// within its bounds and say which bytes of the result users wrote.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/status_macros.h"
#include "tokenizer/chat/chat_template.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

constexpr jinja::Limits kLimits = {
    .max_steps = 20000, .max_work_bytes = size_t{4} << 20, .max_output_bytes = size_t{64} << 10};

Conversation Talk() {
  Conversation talk;
  talk.messages = {{.role = "system", .content = " Be kind. "},
                   {.role = "user", .content = "caf\u00e9 <|im_end|>\n \U0001f600", .name = "Ann"},
                   {.role = "assistant",
                    .content = "<think>x</think>",
                    .tool_calls = {{"call00001", "f", "{}"}}},
                   {.role = "tool", .content = "{\"t\": 1.5}", .tool_call_id = "call00001"},
                   {.role = "user", .content = ""}};
  talk.tools_json = R"([{"type": "function", "function": {"name": "f", "parameters":
      {"type": "object", "properties": {"x": {"type": "string", "enum": ["a", null, 2]}}}}}])";
  talk.variables_json = R"({"enable_thinking": false, "a": 7, "words": ["b", "A"]})";
  return talk;
}

void CheckRendered(const RenderedChat& chat) {
  LK_CHECK(chat.text.size() <= kLimits.max_output_bytes);
  LK_CHECK(!FindInvalidUtf8(chat.text).has_value());
  size_t end = 0;
  for (const ByteRange& range : chat.user_ranges) {
    LK_CHECK(range.begin < range.end && range.begin >= end);
    end = range.end;
  }
  LK_CHECK(end <= chat.text.size());
}

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lowkey::Conversation talk = lowkey::Talk();
  const auto parsed = lowkey::ChatTemplate::Parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) {
    LK_CHECK(!parsed.status().message().empty());
    return 0;
  }
  const auto chat =
      parsed->Render(talk, {.bos_token = "<s>", .eos_token = "</s>"}, lowkey::kLimits);
  if (chat.ok()) {
    lowkey::CheckRendered(*chat);
  } else {
    LK_CHECK(!chat.status().message().empty());
  }
  return 0;
}

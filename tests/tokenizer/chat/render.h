#ifndef LOWKEY_TESTS_TOKENIZER_CHAT_RENDER_H_
#define LOWKEY_TESTS_TOKENIZER_CHAT_RENDER_H_

#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/chat/jinja/interpreter.h"
#include "tokenizer/chat/jinja/syntax.h"
#include "tokenizer/chat/values/format.h"

namespace lowkey::jinja {

// Renders a template with the variables in a JSON object, all of whose strings a user wrote. The
// clock says 2026-03-04 05:06:07.
inline absl::StatusOr<Text> Render(const std::string& source, const std::string& json = "{}",
                                   const Limits& limits = {}) {
  const absl::StatusOr<Body> body = ParseTemplate(source);
  if (!body.ok()) return body.status();
  const Clock clock{absl::FromCivil(absl::CivilSecond(2026, 3, 4, 5, 6, 7), absl::UTCTimeZone())};
  Arena arena(limits, clock);
  const absl::StatusOr<Value> values = FromJson(json, arena);
  if (!values.ok()) return values.status();
  absl::flat_hash_map<std::string, Value> variables;
  for (const Dict::Entry& entry : values->AsDict()->entries()) {
    variables[entry.key->bytes()] = entry.value;
  }
  return Interpreter(variables, arena).Render(*body);
}

// Returns the text with the user's parts in braces: "<user>{hi}".
inline std::string Marked(const Text& text) {
  std::string marked;
  size_t at = 0;
  for (const ByteRange& range : text.user_ranges()) {
    marked += text.bytes().substr(at, range.begin - at) + "{" +
              text.bytes().substr(range.begin, range.end - range.begin) + "}";
    at = range.end;
  }
  return marked + text.bytes().substr(at);
}

inline std::string RenderMarked(const std::string& source, const std::string& json = "{}") {
  const absl::StatusOr<Text> text = Render(source, json);
  return text.ok() ? Marked(*text) : text.status().ToString();
}

}  // namespace lowkey::jinja

#endif  // LOWKEY_TESTS_TOKENIZER_CHAT_RENDER_H_

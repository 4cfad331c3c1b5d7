#include "server/api/openai/requests/raw_json.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

namespace lowkey {
namespace {

// Walks over JSON that is known to be valid.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  bool at_end() const { return at_ >= text_.size(); }
  char next() const { return at_end() ? '\0' : text_[at_]; }

  void SkipSpaces() {
    while (!at_end() && (next() == ' ' || next() == '\t' || next() == '\n' || next() == '\r'))
      ++at_;
  }
  // Skips one character, and the spaces around it.
  void Skip() {
    SkipSpaces();
    ++at_;
    SkipSpaces();
  }

  // A string with its quotes.
  std::string_view TakeText() {
    const size_t begin = at_++;
    while (!at_end() && next() != '"') at_ += next() == '\\' ? 2 : 1;
    ++at_;
    return Since(begin);
  }

  std::string_view TakeValue() {
    const size_t begin = at_;
    if (next() == '"') return TakeText();
    size_t depth = 0;
    while (!at_end()) {
      const char c = next();
      if (c == '"') {
        TakeText();
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
      ++at_;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) break;
    }
    std::string_view value = Since(begin);
    while (!value.empty() && std::string_view(" \t\r\n").find(value.back()) != value.npos) {
      value.remove_suffix(1);
    }
    return value;
  }

 private:
  std::string_view Since(size_t begin) const { return text_.substr(begin, at_ - begin); }

  const std::string_view text_;
  size_t at_ = 0;
};

bool IsKey(std::string_view quoted, std::string_view key) {
  if (quoted.find('\\') == std::string_view::npos) {
    return quoted.size() == key.size() + 2 && quoted.substr(1, key.size()) == key;
  }
  const auto text = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  return text.is_string() && text.get_ref<const std::string&>() == key;
}

// Calls `take` with the members of an object, in their order, until it returns false: the key with
// its quotes, and the value.
template <typename Take>
void ForEachMember(std::string_view object, const Take& take) {
  Walker walker(object);
  walker.SkipSpaces();
  if (walker.next() != '{') return;
  walker.Skip();
  while (walker.next() == '"') {
    const std::string_view name = walker.TakeText();
    walker.Skip();  // the colon
    const std::string_view value = walker.TakeValue();
    if (!take(name, value)) return;
    walker.Skip();  // the comma, or the end
  }
}

}  // namespace

std::string_view MemberText(std::string_view object, std::string_view key) {
  std::string_view found;
  ForEachMember(object, [&](std::string_view name, std::string_view value) {
    if (!IsKey(name, key)) return true;
    found = value;
    return false;
  });
  return found;
}

std::string WithoutMember(std::string_view object, std::string_view key) {
  std::string text = "{";
  ForEachMember(object, [&](std::string_view name, std::string_view value) {
    if (IsKey(name, key)) return true;
    if (text.size() > 1) text += ',';
    text.append(name).append(":").append(value);
    return true;
  });
  return text + "}";
}

std::vector<std::string_view> ElementTexts(std::string_view array) {
  std::vector<std::string_view> texts;
  Walker walker(array);
  walker.SkipSpaces();
  if (walker.next() != '[') return texts;
  walker.Skip();
  while (!walker.at_end() && walker.next() != ']') {
    texts.push_back(walker.TakeValue());
    walker.Skip();  // the comma, or the end
  }
  return texts;
}

}  // namespace lowkey

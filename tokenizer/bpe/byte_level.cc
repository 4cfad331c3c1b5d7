#include "tokenizer/bpe/byte_level.h"

#include <array>
#include <cstdint>
#include <optional>

#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

bool SpellsItself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Spellings {
  std::array<std::string, 256> of_bytes;
  std::array<std::optional<uint8_t>, 0x200> bytes;  // by code point
};

const Spellings& GetSpellings() {
  static const auto* const spellings = [] {
    auto* const made = new Spellings;
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const int code = SpellsItself(byte) ? byte : next++;
      AppendCodePoint(static_cast<char32_t>(code), made->of_bytes[byte]);
      made->bytes[code] = static_cast<uint8_t>(byte);
    }
    return made;
  }();
  return *spellings;
}

}  // namespace

void AppendSpelled(std::string_view bytes, std::string& out) {
  const Spellings& spellings = GetSpellings();
  for (const char c : bytes) out.append(spellings.of_bytes[static_cast<uint8_t>(c)]);
}

std::string UnspellBytes(std::string_view spelled) {
  std::string bytes;
  for (std::string_view rest = spelled; !rest.empty(); rest.remove_prefix(Utf8Length(rest))) {
    const char32_t code = CodePointAt(rest, 0);
    const auto& table = GetSpellings().bytes;
    if (code >= table.size() || !table[code].has_value()) return std::string(spelled);
    bytes.push_back(static_cast<char>(*table[code]));
  }
  return bytes;
}

}  // namespace lowkey

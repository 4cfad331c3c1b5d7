#include "server/grammar/automaton/char_set.h"

#include <algorithm>

namespace lowkey::grammar {
namespace {

constexpr uint32_t kLast = 0x10FFFF, kFirstSurrogate = 0xD800, kLastSurrogate = 0xDFFF;

int Utf8Length(uint32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

// The last code point of a length.
constexpr uint32_t kLastOf[] = {0, 0x7F, 0x7FF, 0xFFFF, kLast};

void Encode(uint32_t c, int length, uint8_t* bytes) {
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = length - 1; i > 0; --i, c >>= 6) bytes[i] = static_cast<uint8_t>(0x80 | (c & 0x3F));
  bytes[0] = static_cast<uint8_t>(kLead[length] | c);
}

// Splits first..last, all of one length, until every position's bytes are a range of their own.
void Split(uint32_t first, uint32_t last, int length,
           absl::FunctionRef<void(const std::vector<ByteRange8>&)> take) {
  for (int i = 1; i < length; ++i) {
    const uint32_t low_bits = (uint32_t{1} << (6 * i)) - 1;
    if ((first & ~low_bits) == (last & ~low_bits)) continue;
    if ((first & low_bits) != 0) {
      Split(first, first | low_bits, length, take);
      return Split((first | low_bits) + 1, last, length, take);
    }
    if ((last & low_bits) != low_bits) {
      Split(first, (last & ~low_bits) - 1, length, take);
      return Split(last & ~low_bits, last, length, take);
    }
  }
  uint8_t from[4], to[4];
  Encode(first, length, from);
  Encode(last, length, to);
  std::vector<ByteRange8> bytes;
  for (int i = 0; i < length; ++i) bytes.push_back({from[i], to[i]});
  take(bytes);
}

}  // namespace

CharSet CharSet::All() { return CharSet(0, kLast); }

CharSet CharSet::Of(std::string_view ascii) {
  CharSet set;
  for (char c : ascii) set.Add(static_cast<uint8_t>(c), static_cast<uint8_t>(c));
  return set;
}

void CharSet::Normalize() {
  std::sort(ranges_.begin(), ranges_.end());
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().second + 1) {
      merged.back().second = std::max(merged.back().second, range.second);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

CharSet CharSet::FromRanges(const std::vector<Range>& ranges) {
  CharSet set;
  for (const auto& [first, last] : ranges) set.Append(first, last);
  set.Normalize();
  return set;
}

void CharSet::Append(uint32_t first, uint32_t last) {
  const auto add = [this](uint32_t a, uint32_t b) {
    if (a <= b) ranges_.push_back({a, b});
  };
  if (last < kFirstSurrogate || first > kLastSurrogate) {
    add(first, last);
  } else {
    if (first < kFirstSurrogate) add(first, kFirstSurrogate - 1);
    add(std::max(first, kLastSurrogate + 1), last);
  }
}

void CharSet::Add(uint32_t first, uint32_t last) {
  Append(first, last);
  Normalize();
}

void CharSet::Add(const CharSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  Normalize();
}

CharSet CharSet::Complement() const {
  CharSet set;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) set.Append(next, first - 1);
    next = last + 1;
  }
  if (next <= kLast) set.Append(next, kLast);
  return set;
}

CharSet CharSet::Intersection(const CharSet& other) const {
  CharSet set;
  auto a = ranges_.begin(), b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const uint32_t first = std::max(a->first, b->first), last = std::min(a->second, b->second);
    if (first <= last) set.ranges_.push_back({first, last});
    a->second < b->second ? ++a : ++b;
  }
  return set;
}

void ForEachUtf8(const CharSet& chars,
                 absl::FunctionRef<void(const std::vector<ByteRange8>&)> take) {
  for (auto [first, last] : chars.ranges()) {
    while (first <= last) {
      const int length = Utf8Length(first);
      const uint32_t end = std::min(last, kLastOf[length]);
      Split(first, end, length, take);
      first = end + 1;
    }
  }
}

bool TakeChar(std::string_view& text, uint32_t& code_point) {
  if (text.empty()) return false;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  if (length == 0 || text.size() < length) return false;
  uint32_t c = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return false;
    c = c << 6 | (byte(i) & 0x3F);
  }
  if (Utf8Length(c) != static_cast<int>(length) || c > kLast) return false;
  if (c >= kFirstSurrogate && c <= kLastSurrogate) return false;
  code_point = c;
  text.remove_prefix(length);
  return true;
}

}  // namespace lowkey::grammar

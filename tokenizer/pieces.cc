#include "tokenizer/pieces.h"

namespace lowkey {

std::optional<uint8_t> ParseBytePiece(std::string_view piece) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  const size_t high = kDigits.find(piece[3]), low = kDigits.find(piece[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

PieceTrie::PieceTrie(std::vector<Entry> entries) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.key < b.key; });
  // Node i holds the entries [begin, end), which share their first `depth` bytes. Breadth first, so
  // that a node's children are numbered side by side.
  struct Range {
    uint32_t begin;
    uint32_t end;
    uint32_t depth;
  };
  std::vector<Range> ranges = {{0, static_cast<uint32_t>(entries.size()), 0}};
  nodes_.emplace_back();
  labels_.push_back(0);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Range range = ranges[i];
    nodes_[i].first_child = static_cast<uint32_t>(nodes_.size());
    if (range.begin < range.end && entries[range.begin].key.size() == range.depth) {
      nodes_[i].is_key = true;
      nodes_[i].id = entries[range.begin].id;
      ++range.begin;
    }
    while (range.begin < range.end) {
      const char byte = entries[range.begin].key[range.depth];
      uint32_t end = range.begin + 1;
      while (end < range.end && entries[end].key[range.depth] == byte) ++end;
      ranges.push_back({range.begin, end, range.depth + 1});
      nodes_.emplace_back();
      labels_.push_back(static_cast<uint8_t>(byte));
      ++nodes_[i].n_children;
      range.begin = end;
    }
  }
  for (uint32_t i = 0; i < nodes_[kRoot].n_children; ++i) {
    const uint32_t child = nodes_[kRoot].first_child + i;
    root_children_[labels_[child]] = child;
  }
}

}  // namespace lowkey

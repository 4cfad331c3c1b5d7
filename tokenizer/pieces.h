#ifndef LOWKEY_TOKENIZER_PIECES_H_
#define LOWKEY_TOKENIZER_PIECES_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lowkey {

// Returns the byte that a piece of a vocabulary with byte fallback stands for, 10 for "<0x0A>";
// nullopt if the piece has another form.
std::optional<uint8_t> ParseBytePiece(std::string_view piece);

// A set of strings, each with an id, that answers which of them begin a text. It takes at most 13
// bytes per byte of the keys, and is immutable, so safe to share between threads.
class PieceTrie {
 public:
  struct Entry {
    std::string_view key;  // not kept after construction
    int32_t id;
  };
  struct Match {
    size_t n_bytes;
    int32_t id;
  };

  // The keys must be distinct and not empty.
  explicit PieceTrie(std::vector<Entry> entries);

  // Calls visit(Match) for every key that begins `text`, shortest first.
  template <typename Visit>
  void ForEachPrefix(std::string_view text, Visit visit) const {
    uint32_t node = kRoot;
    for (size_t i = 0; i < text.size(); ++i) {
      const std::optional<uint32_t> child = FindChild(node, static_cast<uint8_t>(text[i]));
      if (!child.has_value()) return;
      node = *child;
      if (nodes_[node].is_key) visit(Match{i + 1, nodes_[node].id});
    }
  }

  // Returns the longest key that begins `text`.
  std::optional<Match> LongestPrefix(std::string_view text) const {
    std::optional<Match> longest;
    ForEachPrefix(text, [&](Match match) { longest = match; });
    return longest;
  }

 private:
  static constexpr uint32_t kRoot = 0;

  // Children lie side by side, ordered by their byte, which is in labels_.
  struct Node {
    uint32_t first_child = 0;
    int32_t id = 0;
    uint16_t n_children = 0;
    bool is_key = false;
  };

  std::optional<uint32_t> FindChild(uint32_t node, uint8_t byte) const {
    // Most pieces differ in their first byte, so the root has a direct table.
    if (node == kRoot) return root_children_[byte];
    const auto begin = labels_.begin() + nodes_[node].first_child;
    const auto end = begin + nodes_[node].n_children;
    const auto it = std::lower_bound(begin, end, byte);
    if (it == end || *it != byte) return std::nullopt;
    return static_cast<uint32_t>(it - labels_.begin());
  }

  std::vector<Node> nodes_;
  std::vector<uint8_t> labels_;  // by node: the byte that leads to it
  std::array<std::optional<uint32_t>, 256> root_children_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_PIECES_H_

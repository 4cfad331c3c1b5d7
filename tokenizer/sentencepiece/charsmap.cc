#include "tokenizer/sentencepiece/charsmap.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

// A unit of darts-clone's double array. A child lies at (position of its parent's block) XOR (its
// byte), and proves that it is that child by its label. A unit with a leaf has its value in the
// child for byte 0, so no key holds a NUL; a value has bit 31 set, so its label equals no byte.
bool HasLeaf(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t LeafValue(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t Label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t Offset(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

bool IsCharEnd(std::string_view text, size_t offset) {
  return offset == text.size() || (static_cast<uint8_t>(text[offset]) & 0xC0) != 0x80;
}

// Walks the units reachable from the root, depth first. Subtrees may be shared (the array is built
// from a graph of shared suffixes), so each is entered once and its height kept.
class TrieChecker {
 public:
  TrieChecker(const std::vector<uint32_t>& units, std::string_view replacements)
      : units_(units), replacements_(replacements), heights_(units.size(), kUnvisited) {}

  absl::Status Check() {
    LK_RETURN_IF_ERROR(Enter(0));
    while (!path_.empty()) {
      Step& step = path_.back();
      if (step.next_byte == 256) {
        Leave();
        continue;
      }
      const uint32_t byte = step.next_byte++;
      const uint32_t child = step.block ^ byte;
      if (Label(units_[child]) != byte) continue;
      if (heights_[child] == kOnPath) return Error(child, "lies on a cycle, expected a tree");
      if (heights_[child] == kUnvisited) {
        LK_RETURN_IF_ERROR(Enter(child));
        continue;
      }
      step.height = std::max(step.height, heights_[child] + 1);
      LK_RETURN_IF_ERROR(CheckKeyBytes(child, path_.size() + heights_[child]));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kUnvisited = -1;
  static constexpr int kOnPath = -2;

  struct Step {
    uint32_t position;
    uint32_t block;      // position XOR offset; children at block XOR byte
    uint32_t next_byte;  // 1 to 256
    int height;          // bytes of the longest key below, as far as seen
  };

  absl::Status Error(uint32_t position, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("trie unit ", position, ": ", what));
  }

  absl::Status CheckKeyBytes(uint32_t position, size_t n_bytes) const {
    if (n_bytes <= Charsmap::kMaxKeyBytes) return absl::OkStatus();
    return Error(position,
                 absl::StrCat("ends a key of ", n_bytes, " bytes or more, expected at most ",
                              Charsmap::kMaxKeyBytes));
  }

  absl::Status Enter(uint32_t position) {
    LK_RETURN_IF_ERROR(CheckKeyBytes(position, path_.size()));
    const uint32_t unit = units_[position];
    const uint32_t block = position ^ Offset(unit);
    // The children of a block differ only in their low 8 bits.
    if ((block | 0xFF) >= units_.size()) {
      return Error(position, absl::StrCat("leads to unit ", block | 0xFF, ", expected less than ",
                                          units_.size()));
    }
    if (position != 0 && HasLeaf(unit)) LK_RETURN_IF_ERROR(CheckValue(position, units_[block]));
    heights_[position] = kOnPath;
    path_.push_back({position, block, 1, 0});
    return absl::OkStatus();
  }

  void Leave() {
    const Step step = path_.back();
    path_.pop_back();
    heights_[step.position] = step.height;
    if (!path_.empty()) path_.back().height = std::max(path_.back().height, step.height + 1);
  }

  absl::Status CheckValue(uint32_t position, uint32_t leaf) const {
    const size_t begin = LeafValue(leaf);
    if (begin >= replacements_.size()) {
      return Error(position, absl::StrCat("replacement at byte ", begin, ", expected less than ",
                                          replacements_.size()));
    }
    const std::string_view window = replacements_.substr(begin, Charsmap::kMaxReplacementBytes + 1);
    const size_t n_bytes = window.find('\0');
    if (n_bytes == std::string_view::npos) {
      return Error(position,
                   absl::StrCat("replacement not terminated within ", window.size(),
                                " bytes, expected at most ", Charsmap::kMaxReplacementBytes));
    }
    if (FindInvalidUtf8(window.substr(0, n_bytes)).has_value()) {
      return Error(position, "replacement is not UTF-8, expected valid UTF-8");
    }
    return absl::OkStatus();
  }

  const std::vector<uint32_t>& units_;
  const std::string_view replacements_;
  std::vector<int> heights_;
  std::vector<Step> path_;
};

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Create(std::string_view bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof(trie_bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes, expected at least ", sizeof(trie_bytes)));
  }
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  bytes.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes >= bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("trie of ", trie_bytes,
                                                   " bytes, expected a positive multiple of ",
                                                   sizeof(uint32_t), " less than ", bytes.size()));
  }
  Charsmap map;
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), bytes.data(), trie_bytes);
  map.replacements_.assign(bytes.substr(trie_bytes));
  if (map.replacements_.back() != '\0') {
    return absl::InvalidArgumentError("replacements end without a NUL, expected one");
  }
  LK_RETURN_IF_ERROR(TrieChecker(map.units_, map.replacements_).Check());
  return map;
}

std::optional<Charsmap::Match> Charsmap::LongestMatch(std::string_view text) const {
  std::optional<Match> match;
  uint32_t block = Offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const uint32_t byte = static_cast<uint8_t>(text[i]);
    const uint32_t position = block ^ byte;
    const uint32_t unit = units_[position];
    if (byte == 0 || Label(unit) != byte) break;
    block = position ^ Offset(unit);
    if (!HasLeaf(unit) || !IsCharEnd(text, i + 1)) continue;
    match = Match{i + 1, std::string_view(replacements_.c_str() + LeafValue(units_[block]))};
  }
  return match;
}

}  // namespace lowkey

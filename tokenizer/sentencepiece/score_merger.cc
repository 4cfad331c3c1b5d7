#include <queue>

#include "absl/container/flat_hash_map.h"
#include "tokenizer/sentencepiece/segmenter.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

using PieceIds = absl::flat_hash_map<std::string_view, int32_t>;

// A run of characters merged so far. Symbols form a doubly linked list in the order of the text.
struct Symbol {
  std::string_view text;  // empty once it is merged into the symbol before it
  std::optional<uint32_t> previous;
  std::optional<uint32_t> next;
  bool is_frozen = false;  // a user-defined piece, which is never merged
};

struct Merge {
  float score;
  uint32_t left;
  uint32_t right;
  uint32_t n_bytes;  // the length of both when the merge was proposed

  // The higher score comes first, then the leftmost merge.
  bool operator<(const Merge& other) const {
    if (score != other.score) return score < other.score;
    return left > other.left;
  }
};

// Merges the characters of one text.
class Merger {
 public:
  Merger(const ModelProto& model, const PieceIds& ids, const PieceTrie& user_defined)
      : model_(model), ids_(ids), user_defined_(user_defined) {}

  std::vector<PieceSpan> Run(std::string_view text) {
    SplitCharacters(text);
    for (uint32_t i = 1; i < symbols_.size(); ++i) Propose(i - 1, i);
    while (!merges_.empty()) {
      const Merge merge = merges_.top();
      merges_.pop();
      if (IsCurrent(merge)) Apply(merge);
    }
    std::vector<PieceSpan> segments;
    for (std::optional<uint32_t> i = 0; i.has_value(); i = symbols_[*i].next) {
      Emit(symbols_[*i].text, segments);
    }
    return segments;
  }

 private:
  void SplitCharacters(std::string_view text) {
    while (!text.empty()) {
      const uint32_t i = static_cast<uint32_t>(symbols_.size());
      Symbol symbol;
      const std::optional<PieceTrie::Match> match = user_defined_.LongestPrefix(text);
      symbol.is_frozen = match.has_value();
      symbol.text = text.substr(0, match.has_value() ? match->n_bytes : Utf8Length(text));
      text.remove_prefix(symbol.text.size());
      if (i > 0) symbol.previous = i - 1;
      if (!text.empty()) symbol.next = i + 1;
      symbols_.push_back(symbol);
    }
  }

  // Adjacent symbols lie side by side in the text.
  std::string_view Joined(uint32_t left, uint32_t right) const {
    const std::string_view text = symbols_[left].text;
    return std::string_view(text.data(), text.size() + symbols_[right].text.size());
  }

  void Propose(uint32_t left, uint32_t right) {
    if (symbols_[left].is_frozen || symbols_[right].is_frozen) return;
    const std::string_view text = Joined(left, right);
    const auto it = ids_.find(text);
    if (it == ids_.end()) return;
    const Piece& piece = model_.pieces[it->second];
    merges_.push({piece.score, left, right, static_cast<uint32_t>(text.size())});
    if (piece.type == PieceType::kUnused) splits_[it->second] = symbols_[left].text.size();
  }

  // A merge is stale once either side has been merged with another neighbor.
  bool IsCurrent(const Merge& merge) const {
    const std::string_view left = symbols_[merge.left].text;
    const std::string_view right = symbols_[merge.right].text;
    return !left.empty() && !right.empty() && left.size() + right.size() == merge.n_bytes;
  }

  void Apply(const Merge& merge) {
    Symbol& left = symbols_[merge.left];
    Symbol& right = symbols_[merge.right];
    left.text = Joined(merge.left, merge.right);
    left.next = right.next;
    right.text = {};
    if (left.next.has_value()) symbols_[*left.next].previous = merge.left;
    if (left.previous.has_value()) Propose(*left.previous, merge.left);
    if (left.next.has_value()) Propose(merge.left, *left.next);
  }

  // An unused piece takes part in merges but is undone into the two parts it was made of. Parts get
  // shorter at each level, so the recursion is at most kMaxPieceBytes deep.
  void Emit(std::string_view text, std::vector<PieceSpan>& segments) const {
    const auto it = ids_.find(text);
    if (it == ids_.end()) {
      segments.push_back({text, std::nullopt});
      return;
    }
    const auto split = splits_.find(it->second);
    if (split == splits_.end()) {
      segments.push_back({text, it->second});
      return;
    }
    Emit(text.substr(0, split->second), segments);
    Emit(text.substr(split->second), segments);
  }

  const ModelProto& model_;
  const PieceIds& ids_;
  const PieceTrie& user_defined_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Merge> merges_;
  absl::flat_hash_map<int32_t, size_t> splits_;  // by unused piece: the length of its left part
};

class BpeSegmenter : public Segmenter {
 public:
  BpeSegmenter(const ModelProto& model, const PieceTrie& user_defined)
      : model_(model), user_defined_(user_defined) {
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      const Piece& piece = model.pieces[id];
      if (piece.type == PieceType::kNormal || piece.type == PieceType::kUnused ||
          piece.type == PieceType::kUserDefined) {
        ids_.emplace(piece.text, static_cast<int32_t>(id));
      }
    }
  }

  std::vector<PieceSpan> Cut(std::string_view normalized) const override {
    if (normalized.empty()) return {};
    return Merger(model_, ids_, user_defined_).Run(normalized);
  }

 private:
  const ModelProto& model_;
  const PieceTrie& user_defined_;
  PieceIds ids_;
};

}  // namespace

std::unique_ptr<Segmenter> MakeBpeSegmenter(const ModelProto& model,
                                            const PieceTrie& user_defined) {
  return std::make_unique<BpeSegmenter>(model, user_defined);
}

}  // namespace lowkey

#include <limits>
#include <queue>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status_macros.h"
#include "tokenizer/sentencepiece/segmenter.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

using PieceIds = absl::flat_hash_map<std::string_view, int32_t>;

constexpr uint32_t kMaxBytes = std::numeric_limits<int32_t>::max();
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// A run of characters merged so far. Symbols form a doubly linked list in the order of the text,
// which may have millions of them.
struct Symbol {
  uint32_t begin = 0;
  uint32_t is_frozen : 1 = 0;  // a user-defined piece, which is never merged
  uint32_t n_bytes : 31 = 0;   // 0 once it is merged into the symbol before it
  uint32_t previous = kNone, next = kNone;
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

  absl::Status Run(std::string_view text, Interrupt* interrupt, Segmenter::Visit visit) {
    text_ = text;
    LK_RETURN_IF_ERROR(SplitCharacters(interrupt));
    for (uint32_t i = 1; i < symbols_.size(); ++i) Propose(i - 1, i);
    while (!merges_.empty()) {
      LK_RETURN_IF_ERROR(Count(interrupt));
      const Merge merge = merges_.top();
      merges_.pop();
      if (IsCurrent(merge)) Apply(merge);
    }
    for (uint32_t i = 0; i != kNone; i = symbols_[i].next) Emit(TextOf(symbols_[i]), visit);
    return absl::OkStatus();
  }

 private:
  std::string_view TextOf(const Symbol& symbol) const {
    return text_.substr(symbol.begin, symbol.n_bytes);
  }

  absl::Status SplitCharacters(Interrupt* interrupt) {
    for (uint32_t begin = 0; begin < text_.size();) {
      LK_RETURN_IF_ERROR(Count(interrupt));
      const std::string_view rest = text_.substr(begin);
      const std::optional<PieceTrie::Match> match = user_defined_.LongestPrefix(rest);
      Symbol symbol;
      symbol.begin = begin;
      symbol.is_frozen = match.has_value();
      symbol.n_bytes =
          static_cast<uint32_t>(match.has_value() ? match->n_bytes : Utf8Length(rest)) & kMaxBytes;
      begin += symbol.n_bytes;
      const auto i = static_cast<uint32_t>(symbols_.size());
      if (i > 0) symbol.previous = i - 1;
      if (begin < text_.size()) symbol.next = i + 1;
      symbols_.push_back(symbol);
    }
    return absl::OkStatus();
  }

  void Propose(uint32_t left, uint32_t right) {
    if (symbols_[left].is_frozen || symbols_[right].is_frozen) return;
    // Adjacent symbols lie side by side in the text.
    const uint32_t n_bytes = symbols_[left].n_bytes + symbols_[right].n_bytes;
    const auto it = ids_.find(text_.substr(symbols_[left].begin, n_bytes));
    if (it == ids_.end()) return;
    const Piece& piece = model_.pieces[it->second];
    merges_.push({piece.score, left, right, n_bytes});
    if (piece.type == PieceType::kUnused) splits_[it->second] = symbols_[left].n_bytes;
  }

  // A merge is stale once either side has been merged with another neighbor.
  bool IsCurrent(const Merge& merge) const {
    const uint32_t left = symbols_[merge.left].n_bytes, right = symbols_[merge.right].n_bytes;
    return left > 0 && right > 0 && left + right == merge.n_bytes;
  }

  void Apply(const Merge& merge) {
    Symbol& left = symbols_[merge.left];
    Symbol& right = symbols_[merge.right];
    left.n_bytes = merge.n_bytes & kMaxBytes;
    left.next = right.next;
    right.n_bytes = 0;
    if (left.next != kNone) symbols_[left.next].previous = merge.left;
    if (left.previous != kNone) Propose(left.previous, merge.left);
    if (left.next != kNone) Propose(merge.left, left.next);
  }

  // An unused piece takes part in merges but is undone into the two parts it was made of. Parts get
  // shorter at each level, so the recursion is at most kMaxPieceBytes deep.
  void Emit(std::string_view text, Segmenter::Visit visit) const {
    const auto it = ids_.find(text);
    if (it == ids_.end()) {
      visit({text, std::nullopt});
      return;
    }
    const auto split = splits_.find(it->second);
    if (split == splits_.end()) {
      visit({text, it->second});
      return;
    }
    Emit(text.substr(0, split->second), visit);
    Emit(text.substr(split->second), visit);
  }

  const ModelProto& model_;
  const PieceIds& ids_;
  const PieceTrie& user_defined_;
  std::string_view text_;
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

  absl::Status Cut(std::string_view normalized, Interrupt* interrupt, Visit visit) const override {
    if (normalized.empty()) return absl::OkStatus();
    return Merger(model_, ids_, user_defined_).Run(normalized, interrupt, visit);
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

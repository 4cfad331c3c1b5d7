#include <algorithm>
#include <cfloat>
#include <vector>

#include "engine/base/status_macros.h"
#include "tokenizer/sentencepiece/segmenter.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

// The score by which a character without a piece is below the least likely piece.
constexpr float kUnknownPenalty = 10.0F;

std::vector<PieceTrie::Entry> MatchablePieces(const ModelProto& model) {
  std::vector<PieceTrie::Entry> entries;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    // Unused pieces never win here, so they need not be found.
    if (piece.type == PieceType::kNormal || piece.type == PieceType::kUserDefined) {
      entries.push_back({piece.text, static_cast<int32_t>(id)});
    }
  }
  return entries;
}

// The best segmentation found of the text up to some byte.
struct BestPath {
  float score = 0;
  uint32_t last_begin = 0;         // where its last segment begins
  std::optional<int32_t> last_id;  // and its piece; nullopt: an unknown character
  bool is_reached = false;
};

class UnigramSegmenter : public Segmenter {
 public:
  explicit UnigramSegmenter(const ModelProto& model)
      : model_(model), trie_(MatchablePieces(model)) {
    // SentencePiece begins at FLT_MIN, the least positive float, and the scores are mostly
    // negative; the bonus of user-defined pieces depends on it.
    for (const Piece& piece : model.pieces) {
      if (piece.type != PieceType::kNormal) continue;
      min_score_ = std::min(min_score_, piece.score);
      max_score_ = std::max(max_score_, piece.score);
    }
  }

  absl::Status Cut(std::string_view normalized, Interrupt* interrupt, Visit visit) const override {
    std::vector<BestPath> paths(normalized.size() + 1);
    size_t begin = 0;
    while (begin < normalized.size()) {
      LK_RETURN_IF_ERROR(Count(interrupt));
      const std::string_view rest = normalized.substr(begin);
      const size_t char_bytes = Utf8Length(rest);
      const float score_here = paths[begin].score;
      bool is_char_covered = false;
      trie_.ForEachPrefix(rest, [&](PieceTrie::Match match) {
        // SentencePiece also adds in double and keeps a float, which decides ties.
        Offer(paths[begin + match.n_bytes], Score(match) + score_here, begin, match.id);
        is_char_covered |= match.n_bytes == char_bytes;
      });
      if (!is_char_covered) {
        const float unknown_score = min_score_ - kUnknownPenalty;
        Offer(paths[begin + char_bytes], unknown_score + score_here, begin, std::nullopt);
      }
      begin += char_bytes;
    }
    Backtrack(normalized, paths, visit);
    return absl::OkStatus();
  }

 private:
  double Score(PieceTrie::Match match) const {
    const Piece& piece = model_.pieces[match.id];
    if (piece.type == PieceType::kUserDefined) return match.n_bytes * max_score_ - 0.1;
    return piece.score;
  }

  static void Offer(BestPath& path, double score, size_t begin, std::optional<int32_t> id) {
    if (path.is_reached && !(score > path.score)) return;
    path = {static_cast<float>(score), static_cast<uint32_t>(begin), id, true};
  }

  static void Backtrack(std::string_view text, const std::vector<BestPath>& paths, Visit visit) {
    std::vector<uint32_t> ends;  // the last segment's first
    for (auto end = static_cast<uint32_t>(text.size()); end > 0; end = paths[end].last_begin) {
      ends.push_back(end);
    }
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      const BestPath& path = paths[*end];
      visit({text.substr(path.last_begin, *end - path.last_begin), path.last_id});
    }
  }

  const ModelProto& model_;
  const PieceTrie trie_;
  float min_score_ = FLT_MAX;
  float max_score_ = FLT_MIN;
};

}  // namespace

std::unique_ptr<Segmenter> MakeUnigramSegmenter(const ModelProto& model) {
  return std::make_unique<UnigramSegmenter>(model);
}

}  // namespace lowkey

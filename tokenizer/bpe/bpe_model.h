#ifndef LOWKEY_TOKENIZER_BPE_BPE_MODEL_H_
#define LOWKEY_TOKENIZER_BPE_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/interrupt.h"

namespace lowkey {

struct MergeRule {
  std::string left, right;
};

// A vocabulary and the pairs of its pieces that merge, the earliest first.
struct BpeVocabulary {
  std::vector<std::string> pieces = {};  // by id; empty: the id stands for nothing
  std::vector<MergeRule> merges = {};
  std::optional<std::string> unk_piece = std::nullopt;  // for characters without a piece
  bool fuses_unk = false;       // neighboring characters without a piece are one token
  bool falls_to_bytes = false;  // they become "<0x41>" pieces where the vocabulary has them
  bool ignores_merges = false;  // a word that is a piece is one token, whatever the merges
};

// Merges byte pairs by rank (Sennrich et al., 2016) as Hugging Face's BPE does: the pair merged
// earliest in training first, of equal ones the leftmost. Immutable, safe to share between threads.
class BpeModel {
 public:
  static constexpr size_t kMaxPieces = size_t{1} << 20;
  // Every id of an answer can become a piece of this length.
  static constexpr size_t kMaxPieceBytes = 2048;

  // INVALID_ARGUMENT: no pieces or over kMaxPieces, one over kMaxPieceBytes, one twice, one that is
  // not UTF-8, a merge whose parts or whole are no pieces, or an unk_piece that is none.
  static absl::StatusOr<BpeModel> Create(BpeVocabulary vocabulary);

  // Appends the ids of `word`, which must be valid UTF-8, in O(n log n). Returns the interrupt's
  // error; null: nobody is asked.
  absl::Status Encode(std::string_view word, Interrupt* interrupt, std::vector<int32_t>& ids) const;

  // Returns whether every character of any text becomes an id or more of its own before pieces
  // merge; `is_spelled`: words are spelled by bytes.
  bool CoversAllText(bool is_spelled) const;

  const std::vector<std::string>& pieces() const { return vocabulary_.pieces; }
  std::optional<int32_t> Find(std::string_view piece) const;

 private:
  struct Rule {
    uint32_t rank;
    int32_t id;  // the merged piece
  };

  struct Symbol;

  explicit BpeModel(BpeVocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  absl::Status IndexPieces();
  absl::Status IndexMerges();
  // Returns the ids of the word's characters.
  std::vector<int32_t> Characters(std::string_view word) const;
  bool AppendBytes(std::string_view character, std::vector<int32_t>& ids) const;
  const Rule* FindRule(int32_t left, int32_t right) const;
  void MergeShort(std::vector<int32_t>& symbols) const;
  absl::Status MergeLong(Interrupt* interrupt, std::vector<int32_t>& symbols) const;

  BpeVocabulary vocabulary_;
  absl::flat_hash_map<std::string_view, int32_t> ids_;  // views into vocabulary_
  absl::flat_hash_map<uint64_t, Rule> rules_;           // by left id << 32 | right id
  std::array<std::optional<int32_t>, 256> byte_ids_;    // the pieces "<0x00>" to "<0xFF>"
  std::optional<int32_t> unk_id_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_BPE_MODEL_H_

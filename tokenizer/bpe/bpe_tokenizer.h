#ifndef LOWKEY_TOKENIZER_BPE_BPE_TOKENIZER_H_
#define LOWKEY_TOKENIZER_BPE_BPE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/bpe/added_tokens.h"
#include "tokenizer/bpe/bpe_model.h"
#include "tokenizer/bpe/pre_tokenizer.h"
#include "tokenizer/bpe/rewriter.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// The rules by which pieces become text.
struct BpeDecoder {
  bool unspells = false;     // pieces are spelled by bytes
  bool reads_bytes = false;  // "<0x41>" pieces are bytes
  std::vector<std::pair<std::string, std::string>> replacements = {};  // in each piece, in order
  DecodeRules rules = {};
};

// The parts of a byte-pair tokenizer.
struct BpeSpec {
  BpeVocabulary vocabulary;
  std::vector<AddedToken> added_tokens = {};
  std::vector<RewriteStep> rewriter = {};
  std::vector<PreTokenizerStep> pre_tokenizer = {};
  BpeDecoder decoder = {};
  // The tokens before and behind every text.
  std::optional<int32_t> prefix_id = std::nullopt;
  std::optional<int32_t> suffix_id = std::nullopt;
};

// A byte-pair tokenizer, which gives the ids of Hugging Face's tokenizers for the same file. Where
// broken bytes stand beside whole characters, "<0x41>" pieces keep the characters, as SentencePiece
// does; Hugging Face's drop them.
class BpeTokenizer : public Tokenizer {
 public:
  // INVALID_ARGUMENT: the errors of BpeModel::Create and AddedTokens::Create; an id over the limit,
  // or of an added token that another piece has; a token or an id in `settings` that is none.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(BpeSpec spec,
                                                           TokenizerSettings settings);

  std::optional<int32_t> PieceToId(std::string_view piece) const override;
  bool IsControl(int32_t id) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  std::optional<size_t> max_bytes_per_id() const override;

 private:
  struct Token {
    std::string_view piece;
    std::string_view spelled;  // the piece, or an added token as rewritten
    std::string surface;
    Surface::Kind kind = Surface::Kind::kNone;
    bool is_control = false;
  };

  BpeTokenizer(BpeModel model, AddedTokens added_tokens, BpeSpec spec);

  absl::Status IndexAddedTokens();
  void MakeSurfaces(const BpeDecoder& decoder);

  absl::Status EncodeText(std::string_view text, const EncodeOptions& options,
                          std::vector<int32_t>& ids) const override;
  Surface SurfaceOf(int32_t id) const override { return {tokens_[id].kind, tokens_[id].surface}; }
  std::string_view PieceOf(int32_t id) const override { return tokens_[id].piece; }

  absl::Status EncodeRewritten(Section section, PatternBudget& budget,
                               std::vector<int32_t>& ids) const;

  const BpeModel model_;
  const AddedTokens added_tokens_;
  const Rewriter rewriter_;
  const PreTokenizer pre_tokenizer_;
  std::vector<Token> tokens_;                                 // by id
  absl::flat_hash_map<std::string_view, int32_t> added_ids_;  // by content
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_BPE_TOKENIZER_H_

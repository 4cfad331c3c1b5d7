#ifndef LOWKEY_TOKENIZER_TOKENIZER_H_
#define LOWKEY_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tokenizer/model_proto.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/piece_trie.h"
#include "tokenizer/segmenter.h"
#include "tokenizer/settings.h"

namespace lowkey {

// Bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

struct EncodeOptions {
  std::optional<bool> add_bos = std::nullopt;  // unset: as the model's files say
  std::optional<bool> add_eos = std::nullopt;  // unset: as the model's files say

  // Text that spells a control piece becomes that piece. Each stretch between two of them is then
  // encoded as a text of its own. Only for text that no user wrote, but for literal_ranges.
  bool parse_special = false;

  // What of the text a user wrote: sorted, without overlaps; it must outlive the call. No control
  // piece that overlaps one of them is recognised. Nothing else changes: otherwise the text is
  // encoded as a whole.
  absl::Span<const ByteRange> literal_ranges = {};
};

struct DecodeOptions {
  // The ids continue a text (they were generated after a prompt), so a leading space is theirs. If
  // false, they begin a text, and the dummy prefix that Encode gave it is taken off again.
  bool keep_leading_space = false;
};

// A SentencePiece model: text to token ids and back. Immutable, safe to share between threads.
//
// Decode(Encode(text)) == text if the model neither rewrites characters (identity normalisation, no
// removal of extra whitespace) nor lacks them (byte fallback, or pieces for all of the text's
// characters), and the text is without U+2581, the character that SentencePiece writes for a space.
class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{4} << 20;

  // Takes a tokenizer.model's bytes, which may be hostile. The errors of ParseModelProto,
  // ValidateModelProto and Charsmap::Create; INVALID_ARGUMENT if `settings` names a token or an id
  // that the model lacks.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(std::string_view model_bytes,
                                                           const TokenizerSettings& settings = {});

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Any UTF-8, NUL included. Empty text has no tokens but bos and eos. Unless parse_special is set,
  // no control piece comes out of the text itself. INVALID_ARGUMENT: over kMaxTextBytes, or not
  // UTF-8 (the message says at which byte), or literal_ranges that are not in order and in the
  // text, or add_bos or add_eos without such a token.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options = {}) const;

  // Always valid UTF-8. Control pieces give nothing; byte pieces side by side join to bytes, of
  // which each that is not part of a valid character gives U+FFFD; the unknown piece gives the
  // model's unk_surface. INVALID_ARGUMENT: an id that is negative or not below vocab_size.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids,
                                     const DecodeOptions& options = {}) const;

  // The piece as the model spells it ("▁the", "<0x0A>"). INVALID_ARGUMENT: no such id.
  absl::StatusOr<std::string_view> IdToPiece(int32_t id) const;
  // nullopt: no piece is spelled so.
  std::optional<int32_t> PieceToId(std::string_view piece) const;

  // False also for an id outside the vocabulary.
  bool IsControl(int32_t id) const;

  int32_t vocab_size() const { return static_cast<int32_t>(model_.pieces.size()); }
  int32_t unk_id() const { return unk_id_; }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  // The ids that end a text, without repeats; the first is the one that add_eos appends. May be
  // empty.
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  bool adds_bos() const { return adds_bos_; }
  bool adds_eos() const { return adds_eos_; }

 private:
  friend class StreamDecoder;

  Tokenizer(ModelProto model, std::optional<Charsmap> charsmap);

  absl::Status ResolveSpecialTokens(const TokenizerSettings& settings);
  absl::Status CheckId(int32_t id) const;
  std::optional<int32_t> FindControl(std::string_view piece) const;
  absl::Status EncodePlain(std::string_view text, std::vector<int32_t>& ids) const;
  absl::Status EncodeWithSpecials(std::string_view text, absl::Span<const ByteRange> literal_ranges,
                                  std::vector<int32_t>& ids) const;

  const ModelProto model_;
  const PieceTrie user_defined_;
  const PieceTrie controls_;
  const Normalizer normalizer_;
  const std::unique_ptr<Segmenter> segmenter_;
  absl::flat_hash_map<std::string_view, int32_t> ids_;
  std::vector<int32_t> byte_ids_;              // by byte; empty without byte fallback
  std::vector<std::optional<uint8_t>> bytes_;  // by id: what a byte piece stands for
  int32_t unk_id_ = 0;
  std::optional<int32_t> bos_id_;
  std::vector<int32_t> eos_ids_;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
};

// Reads tokenizer.model in `directory` and, where present, tokenizer_config.json,
// special_tokens_map.json, generation_config.json and config.json. An id in the config files wins
// over a token's name in the tokenizer's files, and that over the model's own. Adds bos unless
// add_bos_token is false, and eos only if add_eos_token is true.
// NOT_FOUND: no tokenizer.model. Otherwise the errors of LoadTokenizerSettings and Create.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_TOKENIZER_H_

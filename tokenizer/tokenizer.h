#ifndef LOWKEY_TOKENIZER_TOKENIZER_H_
#define LOWKEY_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tokenizer/interrupt.h"
#include "tokenizer/settings.h"

namespace lowkey {

// The bytes [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

struct EncodeOptions {
  std::optional<bool> add_bos = std::nullopt;  // unset: as the model's files say
  std::optional<bool> add_eos = std::nullopt;  // unset: as the model's files say

  // Text that spells a control piece becomes that piece. Each stretch between two of them is then
  // encoded as a text of its own. Set it only if all user text lies in literal_ranges.
  bool parse_special = false;

  // The parts that a user wrote: sorted, without overlaps; they must outlive the call. No control
  // piece that overlaps one of them is recognized. Nothing else changes: otherwise the text is
  // encoded as a whole.
  absl::Span<const ByteRange> literal_ranges = {};

  // Is asked while a text is encoded and can end that; null: nobody is asked. Must outlive the
  // call.
  Interrupt* interrupt = nullptr;
};

struct DecodeOptions {
  // The ids continue a text (they were generated after a prompt), so a leading space is theirs. If
  // false, they begin a text, and the dummy prefix that Encode gave it is taken off again.
  bool keep_leading_space = false;
  // Control pieces whose text comes out as they are spelled; the others give nothing. Must outlive
  // the decoding.
  absl::Span<const std::string> shown_pieces = {};
  // The longest text that may come out; longer ones are refused before they are built.
  size_t max_bytes = std::numeric_limits<size_t>::max();
};

// The bytes that an id decodes to.
struct Surface {
  enum class Kind {
    kNone,   // nothing, as if the id were not there
    kBreak,  // nothing, but no character goes on behind it
    kText,   // whole characters
    kBytes,  // bytes, which join with their neighbors to characters
  };
  Kind kind = Kind::kNone;
  std::string_view text = {};
};

// The rules by which surfaces join to a text.
struct DecodeRules {
  // The spaces that are removed where a text begins.
  enum class LeadingSpace {
    kKept,
    kOne,             // one space
    kOneIfText,       // one space, unless it comes from bytes
    kOneOfEachPiece,  // one space of each piece, until a piece has more than that; none from bytes
    kAllOfFirstPiece,
  };
  // The unit that becomes one U+FFFD: a byte, or as many as may begin a character.
  enum class BrokenUtf8 { kByte, kSequence };

  LeadingSpace leading_space = LeadingSpace::kKept;
  BrokenUtf8 broken_utf8 = BrokenUtf8::kByte;
};

// Turns text into token ids and back. Immutable, safe to share between threads.
class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{4} << 20;

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Takes any UTF-8, NUL included. Empty text gives only bos and eos. Unless parse_special is set,
  // text that spells a control piece is text. INVALID_ARGUMENT: over kMaxTextBytes, or not
  // UTF-8 (the message says at which byte), or literal_ranges that are not in order and in the
  // text, or add_bos or add_eos without such a token; or the implementation's own errors, or that
  // of options.interrupt.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options = {}) const;

  // Returns valid UTF-8. Control pieces give nothing unless options.shown_pieces has them; bytes
  // side by side join to characters, and those that do not give U+FFFD. INVALID_ARGUMENT: an id
  // that is negative or not below vocab_size. RESOURCE_EXHAUSTED: a text over max_bytes.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids,
                                     const DecodeOptions& options = {}) const;

  // Returns the piece as the model spells it ("▁the", "Ġthe", "<0x0A>"); empty for an id that the
  // model leaves out. INVALID_ARGUMENT: no such id.
  absl::StatusOr<std::string_view> IdToPiece(int32_t id) const;
  // Returns nullopt when no piece is spelled so.
  virtual std::optional<int32_t> PieceToId(std::string_view piece) const = 0;

  // Returns the bytes that the id adds to a text that it continues; nullopt for an id that adds
  // none (a control piece, or an id that the model leaves out) or is outside the vocabulary. The
  // bytes live as long as the tokenizer.
  std::optional<std::string_view> BytesOf(int32_t id) const;

  // Returns false also for an id outside the vocabulary.
  virtual bool IsControl(int32_t id) const = 0;

  virtual int32_t vocab_size() const = 0;

  // Returns the most bytes of a text that one id of Encode can stand for: a longer text than this
  // times n has more than n ids, whatever it says. Nullopt if the model drops parts of texts or
  // makes one id of any length of text.
  virtual std::optional<size_t> max_bytes_per_id() const { return std::nullopt; }
  std::optional<int32_t> bos_id() const { return bos_id_; }
  // The ids that end a text, without repeats; the first is the one that add_eos appends. May be
  // empty.
  const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
  bool adds_bos() const { return adds_bos_; }
  bool adds_eos() const { return adds_eos_; }

 protected:
  // The special tokens that the tokenizer's own file names.
  struct OwnSpecials {
    std::optional<int32_t> bos_id = std::nullopt;
    std::optional<int32_t> eos_id = std::nullopt;
    bool adds_bos = false;
    bool adds_eos = false;
  };

  explicit Tokenizer(DecodeRules decode_rules) : decode_rules_(decode_rules) {}

  // Call this once, when pieces can be looked up. `settings` wins over `own`.
  // INVALID_ARGUMENT: it names a token or an id that the model lacks.
  absl::Status ResolveSpecials(const OwnSpecials& own, const TokenizerSettings& settings);

 private:
  friend class StreamDecoder;

  // Appends the ids of `text`, without bos and eos. The text and its ranges have been checked.
  virtual absl::Status EncodeText(std::string_view text, const EncodeOptions& options,
                                  std::vector<int32_t>& ids) const = 0;
  // `id` is in the vocabulary. The results live as long as the tokenizer.
  virtual Surface SurfaceOf(int32_t id) const = 0;
  virtual std::string_view PieceOf(int32_t id) const = 0;

  // Sets `id` to that of `piece`, if there is one; `key` is the setting that names it.
  absl::Status FindPiece(const char* key, const std::optional<std::string>& piece,
                         std::optional<int32_t>& id) const;
  absl::Status CheckId(int32_t id) const;

  const DecodeRules decode_rules_;
  std::optional<int32_t> bos_id_;
  std::vector<int32_t> eos_ids_;
  bool adds_bos_ = false;
  bool adds_eos_ = false;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_TOKENIZER_H_

#ifndef LOWKEY_TOKENIZER_BPE_ADDED_TOKENS_H_
#define LOWKEY_TOKENIZER_BPE_ADDED_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/bpe/rewriter.h"
#include "tokenizer/pieces.h"

namespace lowkey {

// A token that is found in a text before words are cut.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool is_special = false;      // a control token
  bool is_normalized = false;   // looked for, rewritten, in rewritten text
  bool is_single_word = false;  // only where no word goes on before or behind it
  bool takes_left_space = false, takes_right_space = false;
  std::string searched = {};  // the text to look for; AddedTokens::Create sets it
};

// Finds added tokens as Hugging Face's tokenizers do: from left to right, at each place the
// longest. Immutable, safe to share between threads.
class AddedTokens {
 public:
  static constexpr size_t kMaxContentBytes = 512;
  static constexpr size_t kMaxTotalBytes = size_t{4} << 20;  // an index of them takes 13 times that

  // INVALID_ARGUMENT: a content that is empty, over kMaxContentBytes, not UTF-8 or repeated;
  // or over kMaxTotalBytes together.
  // UNIMPLEMENTED: a special token that is looked for in a Unicode normalization form: what a user
  // wrote could not be told from it.
  static absl::StatusOr<AddedTokens> Create(std::vector<AddedToken> tokens,
                                            const Rewriter& rewriter);

  struct Options {
    bool in_rewritten_text = false;  // look for the normalized tokens, or for the others
    bool parse_special = false;      // special tokens are found too, outside literal bytes
  };
  using VisitText = absl::FunctionRef<absl::Status(Section)>;
  using VisitToken = absl::FunctionRef<void(int32_t id)>;

  // Cuts `section` into tokens and the text between, never empty, in order. The visitor's errors.
  absl::Status Split(const Section& section, Options options, VisitText visit_text,
                     VisitToken visit_token) const;

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  AddedTokens(std::vector<AddedToken> tokens, PieceTrie raw, PieceTrie rewritten)
      : tokens_(std::move(tokens)), raw_(std::move(raw)), rewritten_(std::move(rewritten)) {}

  std::vector<AddedToken> tokens_;
  PieceTrie raw_, rewritten_;  // to the index of a token
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_ADDED_TOKENS_H_

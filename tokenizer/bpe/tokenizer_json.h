#ifndef LOWKEY_TOKENIZER_BPE_TOKENIZER_JSON_H_
#define LOWKEY_TOKENIZER_BPE_TOKENIZER_JSON_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/json.h"
#include "tokenizer/bpe/bpe_tokenizer.h"

namespace lowkey {

inline constexpr size_t kMaxTokenizerJsonBytes = size_t{64} << 20;

// Reads a tokenizer.json of Hugging Face's (untrusted text) whose model is BPE. Truncation and
// padding, which it may ask for, are not done. Every message begins with "tokenizer.json" and the
// path to the value.
//   INVALID_ARGUMENT  no JSON object, a value missing or of another type, over a limit, or not a
//                     regular expression
//   UNIMPLEMENTED     another model, or a setting that changes ids or text and is not computed
absl::StatusOr<BpeSpec> ParseTokenizerJson(std::string_view text);

// Read the parts that are made of steps; each may be null or missing in the file.
absl::StatusOr<std::vector<RewriteStep>> ParseNormalizer(const JsonValue& json);
absl::StatusOr<std::vector<PreTokenizerStep>> ParsePreTokenizer(const JsonValue& json);
absl::StatusOr<BpeDecoder> ParseDecoder(const JsonValue& json);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_TOKENIZER_JSON_H_

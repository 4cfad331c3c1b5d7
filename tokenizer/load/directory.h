#ifndef LOWKEY_TOKENIZER_LOAD_DIRECTORY_H_
#define LOWKEY_TOKENIZER_LOAD_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// Reads tokenizer.model in `directory` and, where present, tokenizer_config.json,
// special_tokens_map.json, generation_config.json and config.json. An id in the config files wins
// over a token's name in the tokenizer's files, and that over the model's own. Adds bos unless
// add_bos_token is false, and eos only if add_eos_token is true.
// NOT_FOUND: no tokenizer.model. Otherwise the errors of LoadTokenizerSettings and
// SentencePieceTokenizer::Create.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerDirectory(const std::string& directory);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_LOAD_DIRECTORY_H_

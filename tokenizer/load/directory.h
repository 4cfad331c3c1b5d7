#ifndef LOWKEY_TOKENIZER_LOAD_DIRECTORY_H_
#define LOWKEY_TOKENIZER_LOAD_DIRECTORY_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// Reads tokenizer.json in `directory`, or tokenizer.model where the first is missing or holds what
// we do not compute (a Unigram model). The first wins because it alone has the tokens that were
// added to a model after its training.
//
// The optional files tokenizer_config.json, special_tokens_map.json, generation_config.json and
// config.json beside it tell the special tokens. An id in the config files wins
// over a token's name in the tokenizer's files, and that over the model's own. add_bos_token and
// add_eos_token decide whether bos and eos are added; where they are not set, tokenizer.json's
// post-processor does, and tokenizer.model adds bos alone.
//
// NOT_FOUND: neither file. Otherwise the errors of LoadTokenizerSettings, and of
// ParseTokenizerJson and BpeTokenizer::Create or of SentencePieceTokenizer::Create.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerDirectory(const std::string& directory);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_LOAD_DIRECTORY_H_

#ifndef LOWKEY_SERVER_LOAD_TOKENIZER_H_
#define LOWKEY_SERVER_LOAD_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// The tokenizer of a model: of a .gguf file or a directory with one, by its metadata; of any other
// directory, by LoadTokenizerDirectory. The errors of FindGguf, OpenGguf and MakeGgufTokenizer, or
// of LoadTokenizerDirectory.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& model_path);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_LOAD_TOKENIZER_H_

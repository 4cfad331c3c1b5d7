#ifndef LOWKEY_SERVER_MODEL_FILES_LOAD_TOKENIZER_H_
#define LOWKEY_SERVER_MODEL_FILES_LOAD_TOKENIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/loader/model_files.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// Makes the tokenizer of a model: from the metadata of a GGUF file, or from the files of a
// directory. Errors are those of MakeGgufTokenizer or LoadTokenizerDirectory.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const ModelFiles& files);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_MODEL_FILES_LOAD_TOKENIZER_H_

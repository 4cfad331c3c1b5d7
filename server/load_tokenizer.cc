#include "server/load_tokenizer.h"

#include "tokenizer/load/directory.h"

namespace lowkey {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& model_path) {
  return LoadTokenizerDirectory(model_path);
}

}  // namespace lowkey

#include "tokenizer/load/directory.h"

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

namespace lowkey {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerDirectory(const std::string& directory) {
  LK_ASSIGN_OR_RETURN(const std::string bytes,
                      ReadWholeFile(directory + "/tokenizer.model", kMaxModelBytes));
  LK_ASSIGN_OR_RETURN(const TokenizerSettings settings, LoadTokenizerSettings(directory));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      SentencePieceTokenizer::Create(bytes, settings);
  if (tokenizer.ok()) return tokenizer;
  return absl::Status(tokenizer.status().code(),
                      absl::StrCat(directory, ": ", tokenizer.status().message()));
}

}  // namespace lowkey

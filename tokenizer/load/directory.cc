#include "tokenizer/load/directory.h"

#include "engine/base/files.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/bpe/tokenizer_json.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

namespace lowkey {
namespace {

using TokenizerOr = absl::StatusOr<std::unique_ptr<Tokenizer>>;

TokenizerOr LoadJson(const std::string& directory, const TokenizerSettings& settings) {
  LK_ASSIGN_OR_RETURN(const std::string text,
                      ReadWholeFile(directory + "/tokenizer.json", kMaxTokenizerJsonBytes));
  LK_ASSIGN_OR_RETURN(BpeSpec spec, ParseTokenizerJson(text));
  return BpeTokenizer::Create(std::move(spec), settings);
}

TokenizerOr LoadModel(const std::string& directory, const TokenizerSettings& settings) {
  LK_ASSIGN_OR_RETURN(const std::string bytes,
                      ReadWholeFile(directory + "/tokenizer.model", kMaxModelBytes));
  return SentencePieceTokenizer::Create(bytes, settings);
}

TokenizerOr Load(const std::string& directory) {
  LK_ASSIGN_OR_RETURN(const TokenizerSettings settings, LoadTokenizerSettings(directory));
  TokenizerOr from_json = LoadJson(directory, settings);
  if (!absl::IsNotFound(from_json.status()) && !absl::IsUnimplemented(from_json.status())) {
    return from_json;
  }
  TokenizerOr from_model = LoadModel(directory, settings);
  if (!absl::IsNotFound(from_model.status())) return from_model;
  if (absl::IsUnimplemented(from_json.status())) return from_json;
  return absl::NotFoundError("no tokenizer.json and no tokenizer.model, expected one of them");
}

}  // namespace

TokenizerOr LoadTokenizerDirectory(const std::string& directory) {
  return Prefixed(directory, Load(directory));
}

}  // namespace lowkey

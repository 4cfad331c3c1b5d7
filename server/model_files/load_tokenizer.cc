#include "server/model_files/load_tokenizer.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/status_macros.h"
#include "tokenizer/load/directory.h"
#include "tokenizer/load/gguf_vocabulary.h"

namespace lowkey {
namespace {

absl::StatusOr<std::string> ReadText(const GgufMetadata& metadata, const char* key,
                                     const std::string& missing) {
  LK_ASSIGN_OR_RETURN(const std::optional<std::string_view> text, metadata.String(key));
  return text.has_value() ? std::string(*text) : missing;
}

absl::StatusOr<std::vector<std::string>> ReadTexts(const GgufMetadata& metadata, const char* key) {
  LK_ASSIGN_OR_RETURN(const auto texts, metadata.Strings(key));
  if (!texts.has_value()) return std::vector<std::string>();
  return std::vector<std::string>(texts->begin(), texts->end());
}

absl::StatusOr<std::optional<int32_t>> ReadId(const GgufMetadata& metadata, const char* key) {
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> id,
                      metadata.Int(key, 0, std::numeric_limits<int32_t>::max()));
  if (!id.has_value()) return std::nullopt;
  return static_cast<int32_t>(*id);
}

absl::StatusOr<GgufVocabulary> ReadVocabulary(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary;
  LK_ASSIGN_OR_RETURN(vocabulary.model, ReadText(metadata, "tokenizer.ggml.model", ""));
  LK_ASSIGN_OR_RETURN(vocabulary.pre, ReadText(metadata, "tokenizer.ggml.pre", vocabulary.pre));
  LK_ASSIGN_OR_RETURN(vocabulary.tokens, ReadTexts(metadata, "tokenizer.ggml.tokens"));
  LK_ASSIGN_OR_RETURN(vocabulary.merges, ReadTexts(metadata, "tokenizer.ggml.merges"));
  LK_ASSIGN_OR_RETURN(auto scores, metadata.Floats("tokenizer.ggml.scores"));
  if (scores.has_value()) vocabulary.scores = *std::move(scores);
  LK_ASSIGN_OR_RETURN(auto types, metadata.Ints("tokenizer.ggml.token_type"));
  if (types.has_value()) vocabulary.token_types = *std::move(types);
  LK_ASSIGN_OR_RETURN(vocabulary.bos_id, ReadId(metadata, "tokenizer.ggml.bos_token_id"));
  LK_ASSIGN_OR_RETURN(vocabulary.eos_id, ReadId(metadata, "tokenizer.ggml.eos_token_id"));
  LK_ASSIGN_OR_RETURN(vocabulary.unk_id, ReadId(metadata, "tokenizer.ggml.unknown_token_id"));
  for (const char* const key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    LK_ASSIGN_OR_RETURN(const std::optional<int32_t> id, ReadId(metadata, key));
    if (id.has_value()) vocabulary.end_ids.push_back(*id);
  }
  LK_ASSIGN_OR_RETURN(vocabulary.add_bos, metadata.Bool("tokenizer.ggml.add_bos_token"));
  LK_ASSIGN_OR_RETURN(vocabulary.add_eos, metadata.Bool("tokenizer.ggml.add_eos_token"));
  LK_ASSIGN_OR_RETURN(vocabulary.add_space_prefix,
                      metadata.Bool("tokenizer.ggml.add_space_prefix"));
  return vocabulary;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const ModelFiles& files) {
  if (files.gguf == nullptr) return LoadTokenizerDirectory(files.directory);
  LK_ASSIGN_OR_RETURN(GgufVocabulary vocabulary, ReadVocabulary(files.gguf->index.metadata));
  return MakeGgufTokenizer(std::move(vocabulary), files.gguf->file->name());
}

}  // namespace lowkey

#ifndef LOWKEY_TOKENIZER_LOAD_GGUF_VOCABULARY_H_
#define LOWKEY_TOKENIZER_LOAD_GGUF_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// The tokenizer in the metadata of a GGUF file: tokenizer.ggml.*. Values may be hostile.
struct GgufVocabulary {
  std::string model = {};                // "llama": SentencePiece's scores; "gpt2": merges
  std::string pre = "default";           // gpt2: names the words' GgufWords
  std::vector<std::string> tokens = {};  // by id
  std::vector<float> scores = {};        // llama: by id
  // The numbers of PieceType by id. Empty: all are normal.
  std::vector<int64_t> token_types = {};
  std::vector<std::string> merges = {};  // gpt2: two tokens with a space between
  std::optional<int32_t> bos_id = {}, eos_id = {}, unk_id = {};
  std::vector<int32_t> end_ids = {};  // further ids that end a text: end of turn, end of message
  std::optional<bool> add_bos = {}, add_eos = {}, add_space_prefix = {};
};

// INVALID_ARGUMENT, naming key and token: lists of different lengths, a type that does not exist,
// an id outside the vocabulary, or what SentencePieceTokenizer::FromModel or BpeTokenizer::Create
// refuse. UNIMPLEMENTED: another model or pre-tokenizer. `name` (the file's) begins every message.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(GgufVocabulary vocabulary,
                                                             const std::string& name);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_LOAD_GGUF_VOCABULARY_H_

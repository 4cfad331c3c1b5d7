#ifndef LOWKEY_TOKENIZER_LOAD_GGUF_WORDS_H_
#define LOWKEY_TOKENIZER_LOAD_GGUF_WORDS_H_

#include <optional>
#include <string_view>
#include <vector>

namespace lowkey {

// The rules that cut a text into words: one regular expression after the other. A match of one is a
// word for the next, and so is the text between two matches.
struct GgufWords {
  std::vector<std::string_view> regexes;
  bool ignores_merges = false;  // a word that is a token is that token
  bool adds_bos = false;        // unless the file says
};

// Returns the rules that a GGUF file names by tokenizer.ggml.pre; nullopt for an unknown name.
std::optional<GgufWords> FindGgufWords(std::string_view pre);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_LOAD_GGUF_WORDS_H_

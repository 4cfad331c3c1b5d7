#ifndef LOWKEY_TOKENIZER_LOAD_GGUF_WORDS_H_
#define LOWKEY_TOKENIZER_LOAD_GGUF_WORDS_H_

#include <optional>
#include <string_view>
#include <vector>

namespace lowkey {

// How a text is cut into words: by one regular expression after the other. What one of them matches
// is a word for the next, and so is what lies between.
struct GgufWords {
  std::vector<std::string_view> regexes;
  bool ignores_merges = false;  // a word that is a token is that token
  bool adds_bos = false;        // unless the file says
};

// What a GGUF file means by tokenizer.ggml.pre. nullopt: a name that we do not know.
std::optional<GgufWords> FindGgufWords(std::string_view pre);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_LOAD_GGUF_WORDS_H_

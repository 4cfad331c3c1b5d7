#ifndef LOWKEY_TOKENIZER_BPE_BYTE_LEVEL_H_
#define LOWKEY_TOKENIZER_BPE_BYTE_LEVEL_H_

#include <string>
#include <string_view>

namespace lowkey {

// Byte-level vocabularies (GPT-2) spell every byte as one printable character: most bytes as the
// character of that code, the others, in order, as U+0100 and on. A space is "Ġ".

// Appends the characters that `bytes` are spelled with.
void AppendSpelled(std::string_view bytes, std::string& out);

// Returns the bytes that `spelled` stands for; `spelled` itself if a character spells no byte.
// `spelled` must be valid UTF-8.
std::string UnspellBytes(std::string_view spelled);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_BYTE_LEVEL_H_

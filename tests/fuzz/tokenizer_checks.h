#ifndef LOWKEY_TESTS_FUZZ_TOKENIZER_CHECKS_H_
#define LOWKEY_TESTS_FUZZ_TOKENIZER_CHECKS_H_

#include "tokenizer/tokenizer.h"

namespace lowkey {

// Encodes and decodes nasty texts, which must do no harm whatever the tokenizer: ids lie in the
// vocabulary, decoded text is UTF-8, and streaming gives the same.
void CheckTokenizer(const Tokenizer& tokenizer);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_FUZZ_TOKENIZER_CHECKS_H_

#ifndef LOWKEY_TOKENIZER_BPE_REGEX_SYNTAX_H_
#define LOWKEY_TOKENIZER_BPE_REGEX_SYNTAX_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lowkey {

// Rewrites a regular expression of Oniguruma's for PCRE2 (UTF, UCP, multiline), with a callout
// before and behind whatever is repeated and every group: a match goes no further between two
// callouts than they stand apart. UNIMPLEMENTED, naming the construct and its offset: anything that
// the two may read differently. Whether the expression is well formed is left to PCRE2.
absl::StatusOr<std::string> TranslateRegex(std::string_view regex);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_BPE_REGEX_SYNTAX_H_

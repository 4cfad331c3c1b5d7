#ifndef LOWKEY_SERVER_GRAMMAR_FORCED_TEXT_H_
#define LOWKEY_SERVER_GRAMMAR_FORCED_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "server/grammar/vocabulary.h"
#include "tokenizer/tokenizer.h"

namespace lowkey::grammar {

// Guesses the white space before `next` at the end of `text`: as where `next` came last behind the
// byte that the text ends with. If it never did: one space behind a comma or colon, no guess behind
// an opening bracket, whose next line is as likely, and else none.
std::optional<std::string_view> GuessSpace(std::string_view text, uint8_t next);

// Returns at most `most` tokens that spell the beginning of `forced` as the tokenizer spells the
// text `before` + `forced`. Where a token of that lies across the border of the two, the longest
// tokens of the vocabulary spell what `before` lacks of it. Characters that `forced` cuts off are
// left out. Empty if the tokenizer refuses the text or changes it.
std::vector<int32_t> SpellForced(const Tokenizer& tokenizer, const Vocabulary& vocabulary,
                                 std::string_view before, std::string_view forced, size_t most);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_FORCED_TEXT_H_

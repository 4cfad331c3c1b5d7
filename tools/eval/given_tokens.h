#ifndef LOWKEY_TOOLS_EVAL_GIVEN_TOKENS_H_
#define LOWKEY_TOOLS_EVAL_GIVEN_TOKENS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/sampler/token_constraint.h"

namespace lowkey {

// Makes constraints that let one text through and nothing else, so that a request generates these
// tokens, of a vocabulary of `vocab_size`, in order. Log-probabilities are the model's all the
// same.
std::shared_ptr<const TokenConstraintFactory> GiveTokens(std::vector<int32_t> tokens,
                                                         int32_t vocab_size);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_GIVEN_TOKENS_H_

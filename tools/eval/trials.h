#ifndef LOWKEY_TOOLS_EVAL_TRIALS_H_
#define LOWKEY_TOOLS_EVAL_TRIALS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/config/attention_options.h"
#include "server/config/flags.h"

namespace lowkey {

// A way to attend that is measured.
struct Trial {
  std::string name;  // AttentionLabel
  AttentionOptions attention;
};

// Returns what --try asks for, in order; without it, what the attention flags say. Unless told
// otherwise, or --as-generated, atp compresses the text itself: with exact prefill no token of it
// would be read from principal keys. INVALID_ARGUMENT names --try and its
// text, or the option.
absl::StatusOr<std::vector<Trial>> ReadTrials(const FlagValues& flags);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_TRIALS_H_

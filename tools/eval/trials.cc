#include "tools/eval/trials.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "server/config/common_flags.h"

namespace lowkey {
namespace {

absl::StatusOr<Trial> MakeTrial(AttentionChoice choice, bool as_generated) {
  const bool is_atp = choice.mechanism.value_or("standard") == "atp";
  if (is_atp && !as_generated) choice.options.try_emplace("prefill", "compressed");
  LK_ASSIGN_OR_RETURN(const AttentionOptions attention, ResolveAttention(choice, {}));
  return Trial{AttentionLabel(attention), attention};
}

absl::StatusOr<Trial> ParseTrial(const std::string& text, bool as_generated) {
  LK_ASSIGN_OR_RETURN(
      const AttentionChoice choice,
      ParseAttention(absl::StrSplit(text, ' ', absl::SkipWhitespace()), NamedAttentionFlags()));
  return MakeTrial(choice, as_generated);
}

}  // namespace

absl::StatusOr<std::vector<Trial>> ReadTrials(const FlagValues& flags) {
  const bool as_generated = flags.Switch("as-generated");
  std::vector<Trial> trials;
  if (!flags.Texts("try").empty() && flags.IsGiven("attention")) {
    return flags.Error("attention", "--try alone, which names what is measured");
  }
  for (const std::string& text : flags.Texts("try")) {
    LK_ASSIGN_OR_RETURN(trials.emplace_back(), Prefixed(absl::StrCat("--try \"", text, "\""),
                                                        ParseTrial(text, as_generated)));
  }
  if (trials.empty()) {
    LK_ASSIGN_OR_RETURN(const AttentionChoice choice, ReadAttention(flags));
    LK_ASSIGN_OR_RETURN(trials.emplace_back(), MakeTrial(choice, as_generated));
  }
  return trials;
}

}  // namespace lowkey

#ifndef LOWKEY_ENGINE_CONFIG_ATTENTION_OPTION_TABLE_H_
#define LOWKEY_ENGINE_CONFIG_ATTENTION_OPTION_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/config/attention_options.h"

namespace lowkey {

enum class OptionKind { kName, kRank, kPrefixStorage, kInteger, kSwitch };

// An option's value: a name, a rank or a prefix storage as text, an integer, or whether a switch is
// on.
using OptionValue = std::variant<std::string, int32_t, bool>;

// Values by the option's name. An option without a value keeps its default.
using OptionValues = std::map<std::string, OptionValue, std::less<>>;

// LabelRule says when AttentionLabel shows an option: only if the value is not the default, only if
// it is, always, or never.
enum class LabelRule { kChanged, kUnchanged, kAlways, kNever };

// The columns of a row that most options leave at these values.
struct OptionTraits {
  // Stands before the value in AttentionLabel; empty: the value stands alone, a switch nowhere.
  std::string_view label = {};
  LabelRule label_rule = LabelRule::kChanged;
  // Range of an integer, whose row always says max, or of an enum's values.
  int32_t min = 0, max = EnumNames::kLast;
  int32_t step = 1;             // the integer is a multiple of it
  std::string_view words = {};  // in errors; empty: the flag's words
  // Says whether atp reads the option only where each block has a basis of its own.
  bool is_of_block_bases = false;
  bool is_aimed = false;  // whether an aim of atp sets it
};

// One option of a mechanism. Flags, request checks, protobuf messages and reports read these rows.
struct AttentionOption {
  std::string_view name;  // of the field in lowkey.v1.AttentionOptions: "cache_storage"
  std::string_view flag;  // without dashes: "cache-storage"
  std::string_view help;  // of the flag, without the owner, the names and the default
  OptionTraits traits;
  Mechanism owner = Mechanism::kStandard;
  OptionKind kind = OptionKind::kInteger;
  const EnumNames* names = nullptr;  // nullptr unless kind is kName

  OptionValue (*get)(const AttentionOptions& options) = nullptr;
  // INVALID_ARGUMENT for a text that is no name or rank. `value` holds the kind's type.
  absl::Status (*set)(const OptionValue& value, AttentionOptions& options) = nullptr;
  // INVALID_ARGUMENT naming owner, option, value and range.
  absl::Status (*check)(const AttentionOption& option, const AttentionOptions& options) = nullptr;
};

// Every option of every mechanism, in the order of `--help`.
absl::Span<const AttentionOption> AttentionOptionTable();

// Returns whether the options' mechanism reads the option.
bool IsRead(const AttentionOption& option, const AttentionOptions& options);

// Returns the name of the option in errors: "atp basis storage".
std::string ErrorName(const AttentionOption& option);

// "int8", "512", "true".
std::string OptionText(const OptionValue& value);

// Sets the options that `values` has. Options that an aim would set turn it off. INVALID_ARGUMENT
// for a text that is no name or rank, and for an aim beside what it sets; ranges are left to
// ValidateAttentionOptions.
absl::Status SetOptions(const OptionValues& values, AttentionOptions& options);

// Returns the options without an aim: what it stands for on a model that is calibrated or not,
// beside the given sinks, window and prefill.
AtpOptions ResolveAim(const AtpOptions& options, bool is_calibrated);

// A mechanism with the options that set it apart: "atp rank 64 basis layer block 512 window 1".
// Rates and measured quality are kept under this text.
std::string AttentionLabel(const AttentionOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_ATTENTION_OPTION_TABLE_H_

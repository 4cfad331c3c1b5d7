#include "engine/config/attention_option_table.h"

#include <tuple>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"

// Adding an option to a mechanism takes four steps (docs/architecture.md "Adding an option"):
//
//   1. A field in the mechanism's struct (attention_options.h) whose initial value is the default,
//      and a row in kTable below, which names the field. A new enum gets its names beside it.
//   2. A field of the same name in lowkey.v1.AttentionOptions (generation.proto): `optional` string
//      for names and ranks, int32 for integers, bool for switches. Its comment states the range and
//      the default.
//   3. The mechanism's code reads the struct.
//   4. FullRequest of tests/server/api/convert_test.cc sets the field.
//
// The flag and its help, /attention of chat, the conversion of requests, the check of names and
// ranges, GetModel's defaults and labels follow from the row. Rules between options are in
// ValidateAttentionOptions.

namespace lowkey {
namespace {

absl::Status CheckName(const AttentionOption& option, int32_t value) {
  const std::string name(FindName(*option.names, value));
  if (!name.empty() && value <= option.traits.max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(ErrorName(option), ": ", name.empty() ? absl::StrCat(value) : name,
                   ", expected ", ListNames(*option.names, option.traits.max)));
}

absl::Status CheckInteger(const AttentionOption& option, int32_t value) {
  const auto& [min, max, step] = std::tie(option.traits.min, option.traits.max, option.traits.step);
  LK_RETURN_IF_ERROR(CheckRange(ErrorName(option), value, min, max));
  if (value % step == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      ErrorName(option), ": ", value, ", expected a multiple of ", step, " in ", min, "..", max));
}

constexpr auto kAtp = &AttentionOptions::atp;
constexpr auto kStandard = &AttentionOptions::standard;
constexpr auto kTaylor = &AttentionOptions::taylorshift;
constexpr auto kEfficient = &AttentionOptions::efficient;
constexpr Mechanism OwnerOf(decltype(kAtp)) { return Mechanism::kAtp; }
constexpr Mechanism OwnerOf(decltype(kStandard)) { return Mechanism::kStandard; }
constexpr Mechanism OwnerOf(decltype(kTaylor)) { return Mechanism::kTaylorShift; }
constexpr Mechanism OwnerOf(decltype(kEfficient)) { return Mechanism::kEfficient; }

// The accessors of the field kField in kGroup, a mechanism's member of AttentionOptions.
template <auto kGroup, auto kField>
struct Access {
  using Field = std::remove_reference_t<decltype(AttentionOptions().*kGroup.*kField)>;
  static constexpr bool kIsName = std::is_enum_v<Field>;
  static constexpr bool kIsRank = std::is_same_v<Field, RankPolicy>;
  static constexpr bool kIsPrefixStorage = std::is_same_v<Field, PrefixStorage>;

  static OptionValue Get(const AttentionOptions& options) {
    const Field& field = options.*kGroup.*kField;
    if constexpr (kIsName) {
      return std::string(NameOf(field));
    } else if constexpr (kIsRank) {
      return RankString(field);
    } else if constexpr (kIsPrefixStorage) {
      return PrefixStorageString(field);
    } else {
      return field;
    }
  }

  static absl::Status Set(const OptionValue& value, AttentionOptions& options) {
    Field& field = options.*kGroup.*kField;
    if constexpr (kIsName) {
      LK_ASSIGN_OR_RETURN(field, ParseName<Field>(std::get<std::string>(value)));
    } else if constexpr (kIsRank) {
      LK_ASSIGN_OR_RETURN(field, ParseRank(std::get<std::string>(value)));
    } else if constexpr (kIsPrefixStorage) {
      LK_ASSIGN_OR_RETURN(field, ParsePrefixStorage(std::get<std::string>(value)));
    } else {
      field = std::get<Field>(value);
    }
    return absl::OkStatus();
  }

  static absl::Status Check(const AttentionOption& option, const AttentionOptions& options) {
    const Field& field = options.*kGroup.*kField;
    if constexpr (kIsName) {
      return CheckName(option, static_cast<int32_t>(field));
    } else if constexpr (std::is_same_v<Field, int32_t>) {
      return CheckInteger(option, field);
    } else {
      return absl::OkStatus();  // the range depends on other options
    }
  }
};

template <auto kGroup, auto kField>
constexpr AttentionOption Row(std::string_view name, std::string_view flag, std::string_view help,
                              const OptionTraits& traits) {
  using A = Access<kGroup, kField>;
  AttentionOption row = {name, flag, help, traits, OwnerOf(kGroup)};
  if constexpr (A::kIsName) {
    row.kind = OptionKind::kName;
    row.names = &kEnumNames<typename A::Field>;
  }
  if constexpr (A::kIsRank) row.kind = OptionKind::kRank;
  if constexpr (A::kIsPrefixStorage) row.kind = OptionKind::kPrefixStorage;
  if constexpr (std::is_same_v<typename A::Field, bool>) row.kind = OptionKind::kSwitch;
  row.get = A::Get, row.set = A::Set, row.check = A::Check;
  return row;
}

constexpr LabelRule kAlways = LabelRule::kAlways;

constexpr AttentionOption kTable[] = {
    Row<kAtp, &AtpOptions::aim>("aim", "aim",
                                "what to want, in place of the options that say how: near-exact "
                                "outputs, a small cache, fast tokens",
                                {.label_rule = LabelRule::kNever}),
    Row<kAtp, &AtpOptions::rank>(
        "rank", "rank", "rank of a block: 64, or a fraction: 1/4, 0.25, or energy:0.95, or entropy",
        {.label = "rank", .label_rule = kAlways, .is_of_block_bases = true, .is_aimed = true}),
    Row<kAtp, &AtpOptions::basis>(
        "basis", "basis", "a basis per layer, per kv head, of x, or found by `lowkey calibrate`",
        {.label = "basis", .label_rule = kAlways, .is_aimed = true}),
    Row<kAtp, &AtpOptions::block_tokens>("block_tokens", "block",
                                         "tokens in a block, a multiple of 64",
                                         {.label = "block",
                                          .label_rule = kAlways,
                                          .min = 64,
                                          .max = kMaxBlockTokens,
                                          .step = 64,
                                          .is_aimed = true}),
    Row<kAtp, &AtpOptions::sinks>("sinks", "sinks", "first tokens that stay exact",
                                  {.label = "sinks", .max = 63}),
    Row<kAtp, &AtpOptions::window_blocks>("window_blocks", "window",
                                          "newest closed blocks that stay exact",
                                          {.label = "window", .label_rule = kAlways, .max = 64}),
    Row<kAtp, &AtpOptions::decomposition>("decomposition", "decomposition", "how a basis is found",
                                          {.is_of_block_bases = true, .is_aimed = true}),
    Row<kAtp, &AtpOptions::basis_storage>(
        "basis_storage", "basis-storage", "how a basis is stored",
        {.label = "U", .max = 2, .is_of_block_bases = true, .is_aimed = true}),
    Row<kAtp, &AtpOptions::principal_storage>(
        "principal_storage", "principal-storage", "how principal keys and values are stored",
        {.label = "K'V'", .max = 1, .is_of_block_bases = true, .is_aimed = true}),
    Row<kAtp, &AtpOptions::refine_tokens>(
        "refine_tokens", "refine", "older tokens read exactly, those that matter most to a row",
        {.label = "refine", .max = 4096, .is_aimed = true}),
    Row<kAtp, &AtpOptions::readout>(
        "readout", "readout", "older blocks by token, or by moments",
        {.label = "readout", .is_of_block_bases = true, .is_aimed = true}),
    Row<kAtp, &AtpOptions::merge>("merge", "merge",
                                  "with readout linear, older blocks become one as they age",
                                  {.label = "merge", .is_aimed = true}),
    Row<kAtp, &AtpOptions::kept_storage>("kept_storage", "kept-storage",
                                         "how the tokens that refine reads are stored",
                                         {.label = "kept", .is_aimed = true}),
    Row<kAtp, &AtpOptions::prefill>("prefill", "prefill", "the prompt's own attention",
                                    {.label = "prefill", .label_rule = LabelRule::kUnchanged}),
    Row<kStandard, &StandardOptions::storage>("cache_storage", "cache-storage",
                                              "how closed pages of the cache are stored",
                                              {.label = "cache", .words = "storage"}),
    Row<kStandard, &StandardOptions::prefix_storage>(
        "prefix_storage", "prefix-storage",
        "how blocks of 512 prompt tokens are kept: exact, or calibrated, perhaps with bits a "
        "number: calibrated:2.45",
        {.label = "prefixes"}),
    Row<kTaylor, &TaylorShiftOptions::variant>("variant", "variant",
                                               "scores of unit vectors, or not", {}),
    Row<kTaylor, &TaylorShiftOptions::form>("form", "form",
                                            "read tokens, a state, or what costs less",
                                            {.label = "form", .label_rule = kAlways}),
    Row<kEfficient, &EfficientOptions::key_storage>(
        "key_storage", "key-storage", "rotated keys beside slices of x, or none: half the cache",
        {.label = "keys"}),
};

bool IsPreset(AtpAim aim) { return aim != AtpAim::kAuto && aim != AtpAim::kNone; }

// Returns what an aim stands for (docs/atp.md "Aims"). Auto is near-exact.
AtpOptions PresetOf(AtpAim aim, bool is_calibrated) {
  AtpOptions o;
  if (is_calibrated) {
    const bool is_small = aim == AtpAim::kSmall;
    o.basis = AtpBasis::kCalibrated, o.block_tokens = is_small ? 64 : 128;
    o.kept_storage = is_small ? AtpStorage::kRest : AtpStorage::kInt4;
    o.refine_tokens = is_small ? 256 : aim == AtpAim::kFast ? 64 : 128;
  } else if (aim == AtpAim::kSmall) {
    o.rank = RankFixed{64}, o.basis_storage = AtpStorage::kInt4;
  } else {
    const bool is_fast = aim == AtpAim::kFast;
    o.basis = is_fast ? AtpBasis::kKv : AtpBasis::kLayer;
    o.rank = RankFixed{is_fast ? 8 : 32}, o.block_tokens = is_fast ? 128 : 512;
    o.refine_tokens = 64;
    o.basis_storage = o.principal_storage = o.kept_storage = AtpStorage::kInt8;
  }
  return o;
}

}  // namespace

absl::Span<const AttentionOption> AttentionOptionTable() { return kTable; }

bool IsRead(const AttentionOption& option, const AttentionOptions& options) {
  return option.owner == options.mechanism &&
         !(option.traits.is_of_block_bases && options.atp.basis == AtpBasis::kCalibrated);
}

std::string ErrorName(const AttentionOption& option) {
  const std::string_view words = option.traits.words.empty() ? option.flag : option.traits.words;
  return absl::StrCat(std::string(MechanismName(option.owner)), " ",
                      absl::StrReplaceAll(std::string(words), {{"-", " "}}));
}

std::string OptionText(const OptionValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<int32_t>(&value)) return absl::StrCat(*number);
  return std::get<bool>(value) ? "true" : "false";
}

absl::Status SetOptions(const OptionValues& values, AttentionOptions& options) {
  const AttentionOption* aimed = nullptr;
  for (const AttentionOption& option : kTable) {
    const auto it = values.find(option.name);
    if (it == values.end()) continue;
    LK_RETURN_IF_ERROR(option.set(it->second, options));
    if (option.traits.is_aimed) aimed = &option;
  }
  if (aimed == nullptr) return absl::OkStatus();
  if (IsPreset(options.atp.aim) && values.contains("aim")) {
    return absl::InvalidArgumentError(absl::StrCat(ErrorName(*aimed), ": set beside aim ",
                                                   std::string(NameOf(options.atp.aim)),
                                                   ", which sets it; expected one of them"));
  }
  options.atp.aim = AtpAim::kNone;
  return absl::OkStatus();
}

AtpOptions ResolveAim(const AtpOptions& options, bool is_calibrated) {
  const auto with_rest = [&](AtpOptions o, AtpAim aim) {
    o.sinks = options.sinks, o.window_blocks = options.window_blocks, o.prefill = options.prefill;
    o.aim = aim;
    return o;
  };
  const bool says_how = options != with_rest({}, AtpAim::kAuto);
  if (!IsPreset(options.aim) && (says_how || !is_calibrated)) {
    return with_rest(options, AtpAim::kNone);
  }
  return with_rest(PresetOf(options.aim, is_calibrated), AtpAim::kNone);
}

std::string AttentionLabel(const AttentionOptions& options) {
  std::string text(MechanismName(options.mechanism));
  for (const AttentionOption& option : kTable) {
    if (!IsRead(option, options)) continue;
    const auto& [label, rule] = std::tie(option.traits.label, option.traits.label_rule);
    const OptionValue value = option.get(options);
    const bool is_default = value == option.get(AttentionOptions());
    if (rule == (is_default ? LabelRule::kChanged : LabelRule::kUnchanged)) continue;
    if (rule == LabelRule::kNever) continue;
    if (!label.empty()) absl::StrAppend(&text, " ", std::string(label));
    if (option.kind != OptionKind::kSwitch) absl::StrAppend(&text, " ", OptionText(value));
  }
  return text;
}

}  // namespace lowkey

#include "engine/config/attention_options.h"

#include <array>
#include <charconv>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/config/limits.h"

namespace lowkey {
namespace {

constexpr std::string_view kEnergyPrefix = "energy:";

absl::Status ValidateRank(const RankPolicy& rank, int32_t block_tokens) {
  if (const auto* fixed = std::get_if<RankFixed>(&rank)) {
    return CheckRange("atp rank", fixed->rank, 1, block_tokens);
  }
  if (const auto* energy = std::get_if<RankEnergy>(&rank)) {
    if (energy->share > 0.0 && energy->share <= 1.0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("atp rank: energy:", energy->share, ", expected a share in (0, 1]"));
  }
  if (std::holds_alternative<RankEntropy>(rank)) return absl::OkStatus();
  const double fraction = std::get<RankFraction>(rank).fraction;
  if (fraction > 0.0 && fraction <= 1.0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("atp rank: ", fraction, ", expected a fraction in (0, 1]"));
}

// Refuses options that the readout would ignore silently.
absl::Status ValidateReadout(const AtpOptions& atp) {
  if (atp.readout == AtpReadout::kExact) {
    if (!atp.merge) return absl::OkStatus();
    return absl::InvalidArgumentError("atp merge: true, expected false with readout exact");
  }
  if (atp.refine_tokens != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("atp refine: ", atp.refine_tokens, ", expected 0 with readout linear"));
  }
  if (atp.basis_storage != AtpStorage::kCache) {
    return absl::InvalidArgumentError(
        absl::StrCat("atp basis storage: ", std::string(NameOf(atp.basis_storage)),
                     ", expected cache with readout linear, which keeps no basis"));
  }
  return absl::OkStatus();
}

// Refuses storage of kept tokens that needs an index.
absl::Status ValidateKept(const AtpOptions& atp) {
  if (atp.kept_storage != AtpStorage::kRest || atp.basis == AtpBasis::kCalibrated) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("atp kept storage: rest, expected cache, int8 or int4 with basis ",
                   std::string(NameOf(atp.basis))));
}

// Refuses options that a calibrated basis would ignore silently, and an index without the tokens
// that it finds.
absl::Status ValidateCalibrated(const AttentionOptions& options) {
  const AttentionOptions defaults;
  for (const AttentionOption& option : AttentionOptionTable()) {
    const OptionValue value = option.get(options), expected = option.get(defaults);
    if (option.owner != Mechanism::kAtp || IsRead(option, options) || value == expected) continue;
    return absl::InvalidArgumentError(absl::StrCat(ErrorName(option), ": ", OptionText(value),
                                                   ", expected ", OptionText(expected),
                                                   " with basis calibrated"));
  }
  if (options.atp.refine_tokens > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "atp refine: 0, expected 1..4096 with basis calibrated, such as 128");
}

absl::Status BadRank(std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "rank \"", std::string(text), "\", expected a number of components in 1..", kMaxBlockTokens,
      " such as 16, a fraction in (0, 1] such as 1/4 or 0.25, energy:SHARE or entropy"));
}

// Reads all of `text` as digits; returns false for other text or a number that does not fit.
template <typename T>
bool ParseAll(std::string_view text, T& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  const bool is_number = result.ec == std::errc() && result.ptr == end;
  return is_number && text.find_first_not_of("0123456789.") == std::string_view::npos;
}

// "0.25", "1.0", ".5": digits with one point before the last.
bool ParseDecimal(std::string_view text, double& value) {
  return text.find('.') != std::string_view::npos && !text.ends_with('.') && ParseAll(text, value);
}

// The shortest digits that parse back to the same double, without an exponent.
std::string DecimalString(double x) {
  char digits[512];
  const auto end = std::to_chars(digits, digits + sizeof(digits), x, std::chars_format::fixed);
  std::string text(digits, end.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

absl::Status BadPrefixStorage(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("prefix storage \"", std::string(text),
                   "\", expected exact, calibrated, or calibrated: and bits in 1.5..8 with at most "
                   "two decimals"));
}

// A prefix in the calibrated code is rebuilt into pages that are stored exactly.
absl::Status ValidatePrefixStorage(const StandardOptions& standard) {
  const PrefixStorage& prefix = standard.prefix_storage;
  if (prefix.is_exact()) return absl::OkStatus();
  LK_RETURN_IF_ERROR(CheckRange("standard prefix storage: hundredths of a bit", prefix.centibits,
                                kMinCentibits, kMaxCentibits));
  if (standard.storage == CacheStorage::kDtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("standard prefix storage: ", PrefixStorageString(prefix),
                   ", expected exact with cache storage ", std::string(NameOf(standard.storage))));
}

}  // namespace

absl::Status ValidateAttentionOptions(const AttentionOptions& options) {
  constexpr const EnumNames& kMechanisms = kEnumNames<Mechanism>;
  if (NameOf(options.mechanism).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(kMechanisms.what), ": ",
                                                   static_cast<int>(options.mechanism),
                                                   ", expected ", ListNames(kMechanisms)));
  }
  for (const AttentionOption& option : AttentionOptionTable()) {
    if (option.owner == options.mechanism) LK_RETURN_IF_ERROR(option.check(option, options));
  }
  if (options.mechanism == Mechanism::kStandard) return ValidatePrefixStorage(options.standard);
  if (options.mechanism != Mechanism::kAtp) return absl::OkStatus();
  LK_RETURN_IF_ERROR(ValidateReadout(options.atp));
  LK_RETURN_IF_ERROR(ValidateKept(options.atp));
  if (options.atp.basis == AtpBasis::kCalibrated) LK_RETURN_IF_ERROR(ValidateCalibrated(options));
  return ValidateRank(options.atp.rank, options.atp.block_tokens);
}

absl::Span<const Mechanism> AllMechanisms() {
  static constexpr auto kAll = [] {
    std::array<Mechanism, kEnumNames<Mechanism>.size()> all = {};
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Mechanism>(i);
    return all;
  }();
  return kAll;
}

std::vector<AttentionOptions> EqualOptions(Mechanism mechanism) {
  std::vector<AttentionOptions> options(1);
  options[0].mechanism = mechanism;
  if (mechanism == Mechanism::kEfficient) {
    options.push_back(options[0]);
    options[1].efficient.key_storage = KeyStorage::kNone;
  }
  return options;
}

bool IsApproximate(const AttentionOptions& options) {
  if (options.mechanism == Mechanism::kStandard) {
    return options.standard.storage != CacheStorage::kDtype ||
           !options.standard.prefix_storage.is_exact();
  }
  return options.mechanism == Mechanism::kAtp || options.mechanism == Mechanism::kTaylorShift;
}

absl::StatusOr<PrefixStorage> ParsePrefixStorage(std::string_view text) {
  constexpr std::string_view kCalibrated = "calibrated";
  if (text == "exact") return PrefixStorage{};
  if (text == kCalibrated) return PrefixStorage{kDefaultCentibits};
  if (!text.starts_with(kCalibrated) || text[kCalibrated.size()] != ':') {
    return BadPrefixStorage(text);
  }
  const std::string_view digits = text.substr(kCalibrated.size() + 1);
  const size_t point = digits.find('.');
  int32_t whole = 0, hundredths = 0;
  if (digits.size() > 4 || !ParseAll(digits.substr(0, point), whole)) return BadPrefixStorage(text);
  if (point != std::string_view::npos) {
    const std::string_view decimals = digits.substr(point + 1);
    if (decimals.empty() || decimals.size() > 2 || !ParseAll(decimals, hundredths)) {
      return BadPrefixStorage(text);
    }
    if (decimals.size() == 1) hundredths *= 10;
  }
  const int32_t centibits = whole * 100 + hundredths;
  if (centibits < kMinCentibits || centibits > kMaxCentibits) return BadPrefixStorage(text);
  return PrefixStorage{centibits};
}

std::string PrefixStorageString(const PrefixStorage& storage) {
  if (storage.is_exact()) return "exact";
  std::string text = absl::StrCat("calibrated:", storage.centibits / 100);
  const int32_t hundredths = storage.centibits % 100;
  if (hundredths == 0) return text;
  absl::StrAppend(&text, ".", hundredths / 10);
  if (hundredths % 10 != 0) absl::StrAppend(&text, hundredths % 10);
  return text;
}

absl::StatusOr<RankPolicy> ParseRank(std::string_view text) {
  if (text == "entropy") return RankEntropy{};
  if (text.starts_with(kEnergyPrefix)) {
    double share = 0.0;
    const std::string_view digits = text.substr(kEnergyPrefix.size());
    if (!ParseDecimal(digits, share) || !(share > 0.0 && share <= 1.0)) return BadRank(text);
    return RankEnergy{share};
  }
  if (int32_t rank = 0; ParseAll(text, rank)) {
    if (rank < 1 || rank > kMaxBlockTokens) return BadRank(text);
    return RankFixed{rank};
  }
  double fraction = 0.0;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    int32_t above = 0, below = 0;
    if (!ParseAll(text.substr(0, slash), above) || !ParseAll(text.substr(slash + 1), below) ||
        below == 0) {
      return BadRank(text);
    }
    fraction = static_cast<double>(above) / below;
  } else if (!ParseDecimal(text, fraction)) {
    return BadRank(text);
  }
  if (!(fraction > 0.0 && fraction <= 1.0)) return BadRank(text);
  return RankFraction{fraction};
}

std::string RankString(const RankPolicy& rank) {
  if (const auto* fixed = std::get_if<RankFixed>(&rank)) return absl::StrCat(fixed->rank);
  if (const auto* energy = std::get_if<RankEnergy>(&rank)) {
    return std::string(kEnergyPrefix) + DecimalString(energy->share);
  }
  if (std::holds_alternative<RankEntropy>(rank)) return "entropy";
  return DecimalString(std::get<RankFraction>(rank).fraction);
}

}  // namespace lowkey

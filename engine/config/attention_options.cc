#include "engine/config/attention_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr int32_t kMinBlockTokens = 64;
constexpr int32_t kMaxBlockTokens = 4096;
constexpr int32_t kBlockStep = 64;
constexpr int32_t kMaxSinks = 63;
constexpr int32_t kMaxWindowBlocks = 64;
constexpr char kBases[] = "layer, kv or input";
constexpr char kStorages[] = "cache, int8 or int4";
constexpr char kForms[] = "auto, direct or recurrent";
constexpr char kVariants[] = "normalized or plain";
constexpr char kCacheStorages[] = "dtype, int8 or int4";
constexpr int32_t kMaxRefineTokens = 4096;
constexpr std::string_view kEnergyPrefix = "energy:";

constexpr std::pair<Mechanism, std::string_view> kNames[] = {
    {Mechanism::kStandard, "standard"},
    {Mechanism::kAtp, "atp"},
    {Mechanism::kTaylorShift, "taylorshift"},
    {Mechanism::kOptimised, "optimised"},
    {Mechanism::kEfficient, "efficient"},
    {Mechanism::kSuper, "super"},
    {Mechanism::kLasso, "lasso"},
};

// "standard, atp, ... or lasso".
std::string KnownMechanisms() {
  std::string text;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    absl::StrAppend(&text,
                    i == 0                      ? ""
                    : i + 1 < std::size(kNames) ? ", "
                                                : " or ",
                    std::string(kNames[i].second));
  }
  return text;
}

absl::Status CheckInt(const char* field, int32_t value, int32_t min, int32_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("atp ", field, ": ", value, ", expected ", min, "..", max));
}

absl::Status ValidateRank(const RankPolicy& rank, int32_t block_tokens) {
  if (const auto* fixed = std::get_if<RankFixed>(&rank)) {
    return CheckInt("rank", fixed->rank, 1, block_tokens);
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

absl::Status ValidateNames(const AtpOptions& atp) {
  if (AtpBasisName(atp.basis).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("atp basis: ", static_cast<int>(atp.basis), ", expected ", kBases));
  }
  if (atp.prefill != AtpPrefill::kExact && atp.prefill != AtpPrefill::kCompressed) {
    return absl::InvalidArgumentError(absl::StrCat("atp prefill: ", static_cast<int>(atp.prefill),
                                                   ", expected exact or compressed"));
  }
  if (atp.decomposition != AtpDecomposition::kBlock &&
      atp.decomposition != AtpDecomposition::kAlternating) {
    return absl::InvalidArgumentError(
        absl::StrCat("atp decomposition: ", static_cast<int>(atp.decomposition),
                     ", expected block or alternating"));
  }
  if (AtpStorageName(atp.basis_storage).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "atp basis storage: ", static_cast<int>(atp.basis_storage), ", expected ", kStorages));
  }
  if (atp.kept_storage != AtpStorage::kCache && atp.kept_storage != AtpStorage::kInt8) {
    return absl::InvalidArgumentError(absl::StrCat(
        "atp kept storage: ", static_cast<int>(atp.kept_storage), ", expected cache or int8"));
  }
  if (atp.principal_storage != AtpStorage::kCache && atp.principal_storage != AtpStorage::kInt8) {
    return absl::InvalidArgumentError(
        absl::StrCat("atp principal storage: ", std::string(AtpStorageName(atp.principal_storage)),
                     ", expected cache or int8"));
  }
  if (atp.readout != AtpReadout::kExact && atp.readout != AtpReadout::kLinear) {
    return absl::InvalidArgumentError(
        absl::StrCat("atp readout: ", static_cast<int>(atp.readout), ", expected exact or linear"));
  }
  return absl::OkStatus();
}

// What the readouts have no use for, and would ignore silently.
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
        absl::StrCat("atp basis storage: ", std::string(AtpStorageName(atp.basis_storage)),
                     ", expected cache with readout linear, which keeps no basis"));
  }
  return absl::OkStatus();
}

absl::Status ValidateAtp(const AtpOptions& atp) {
  if (absl::Status s = CheckInt("block", atp.block_tokens, kMinBlockTokens, kMaxBlockTokens);
      !s.ok()) {
    return s;
  }
  if (atp.block_tokens % kBlockStep != 0) {
    return absl::InvalidArgumentError(absl::StrCat("atp block: ", atp.block_tokens,
                                                   ", expected a multiple of ", kBlockStep, " in ",
                                                   kMinBlockTokens, "..", kMaxBlockTokens));
  }
  if (absl::Status s = ValidateNames(atp); !s.ok()) return s;
  if (absl::Status s = CheckInt("sinks", atp.sinks, 0, std::min(kMaxSinks, atp.block_tokens - 1));
      !s.ok()) {
    return s;
  }
  if (absl::Status s = CheckInt("window", atp.window_blocks, 0, kMaxWindowBlocks); !s.ok()) {
    return s;
  }
  if (absl::Status s = CheckInt("refine", atp.refine_tokens, 0, kMaxRefineTokens); !s.ok()) {
    return s;
  }
  if (absl::Status s = ValidateReadout(atp); !s.ok()) return s;
  return ValidateRank(atp.rank, atp.block_tokens);
}

absl::Status ValidateTaylorShift(const TaylorShiftOptions& options) {
  if (TaylorFormName(options.form).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("taylorshift form: ", static_cast<int>(options.form), ", expected ", kForms));
  }
  if (TaylorVariantName(options.variant).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "taylorshift variant: ", static_cast<int>(options.variant), ", expected ", kVariants));
  }
  return absl::OkStatus();
}

absl::Status ValidateStandard(const StandardOptions& options) {
  if (!CacheStorageName(options.storage).empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "standard storage: ", static_cast<int>(options.storage), ", expected ", kCacheStorages));
}

absl::Status BadName(const char* what, std::string_view name, const char* known) {
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ", what, " \"", std::string(name), "\", expected ", known));
}

absl::Status BadRank(std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "rank \"", std::string(text), "\", expected a number of components in 1..", kMaxBlockTokens,
      " such as 16, a fraction in (0, 1] such as 1/4 or 0.25, energy:SHARE or entropy"));
}

bool IsDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// All of `text` as a decimal integer; false when it is not one or does not fit.
bool ParseDigits(std::string_view text, int32_t& value) {
  if (!IsDigits(text)) return false;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc();
}

// "0.25", "1.0", ".5": digits with one point, no sign and no exponent.
bool ParseDecimal(std::string_view text, double& value) {
  const size_t point = text.find('.');
  if (point == std::string_view::npos) return false;
  const std::string_view whole = text.substr(0, point);
  const std::string_view rest = text.substr(point + 1);
  if (!IsDigits(rest) || (!whole.empty() && !IsDigits(whole))) return false;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc();
}

// The shortest digits that parse back to the same double, without an exponent.
std::string DecimalString(double x) {
  char digits[512];
  const auto end = std::to_chars(digits, digits + sizeof(digits), x, std::chars_format::fixed);
  std::string text(digits, end.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace

absl::Status ValidateAttentionOptions(const AttentionOptions& options) {
  const bool known = std::any_of(std::begin(kNames), std::end(kNames),
                                 [&](const auto& n) { return n.first == options.mechanism; });
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention mechanism: ", static_cast<int>(options.mechanism), ", expected ",
                     KnownMechanisms()));
  }
  if (options.mechanism == Mechanism::kStandard) return ValidateStandard(options.standard);
  if (options.mechanism == Mechanism::kAtp) return ValidateAtp(options.atp);
  if (options.mechanism == Mechanism::kTaylorShift) return ValidateTaylorShift(options.taylorshift);
  return absl::OkStatus();
}

absl::Span<const Mechanism> AllMechanisms() {
  static constexpr auto kAll = [] {
    std::array<Mechanism, std::size(kNames)> all = {};
    for (size_t i = 0; i < all.size(); ++i) all[i] = kNames[i].first;
    return all;
  }();
  return kAll;
}

bool IsApproximate(const AttentionOptions& options) {
  if (options.mechanism == Mechanism::kStandard) {
    return options.standard.storage != CacheStorage::kDtype;
  }
  return options.mechanism == Mechanism::kAtp || options.mechanism == Mechanism::kTaylorShift;
}

std::string_view MechanismName(Mechanism mechanism) {
  for (const auto& [value, name] : kNames) {
    if (value == mechanism) return name;
  }
  return "unknown";
}

absl::StatusOr<Mechanism> ParseMechanism(std::string_view text) {
  for (const auto& [value, name] : kNames) {
    if (name == text) return value;
  }
  return BadName("attention mechanism", text, KnownMechanisms().c_str());
}

std::string_view CacheStorageName(CacheStorage storage) {
  switch (storage) {
    case CacheStorage::kDtype:
      return "dtype";
    case CacheStorage::kInt8:
      return "int8";
    case CacheStorage::kInt4:
      return "int4";
  }
  return "";
}

absl::StatusOr<CacheStorage> ParseCacheStorage(std::string_view name) {
  for (CacheStorage s : {CacheStorage::kDtype, CacheStorage::kInt8, CacheStorage::kInt4}) {
    if (name == CacheStorageName(s)) return s;
  }
  return BadName("cache storage", name, kCacheStorages);
}

std::string_view AtpBasisName(AtpBasis basis) {
  switch (basis) {
    case AtpBasis::kLayer:
      return "layer";
    case AtpBasis::kKv:
      return "kv";
    case AtpBasis::kInput:
      return "input";
  }
  return "";
}

absl::StatusOr<AtpBasis> ParseAtpBasis(std::string_view name) {
  for (AtpBasis b : {AtpBasis::kLayer, AtpBasis::kKv, AtpBasis::kInput}) {
    if (name == AtpBasisName(b)) return b;
  }
  return BadName("atp basis", name, kBases);
}

std::string_view AtpPrefillName(AtpPrefill prefill) {
  return prefill == AtpPrefill::kExact ? "exact" : "compressed";
}

absl::StatusOr<AtpPrefill> ParseAtpPrefill(std::string_view name) {
  if (name == "exact") return AtpPrefill::kExact;
  if (name == "compressed") return AtpPrefill::kCompressed;
  return BadName("atp prefill", name, "exact or compressed");
}

std::string_view TaylorFormName(TaylorForm form) {
  switch (form) {
    case TaylorForm::kAuto:
      return "auto";
    case TaylorForm::kDirect:
      return "direct";
    case TaylorForm::kRecurrent:
      return "recurrent";
  }
  return "";
}

absl::StatusOr<TaylorForm> ParseTaylorForm(std::string_view name) {
  for (TaylorForm f : {TaylorForm::kAuto, TaylorForm::kDirect, TaylorForm::kRecurrent}) {
    if (name == TaylorFormName(f)) return f;
  }
  return BadName("taylorshift form", name, kForms);
}

std::string_view TaylorVariantName(TaylorVariant variant) {
  switch (variant) {
    case TaylorVariant::kNormalized:
      return "normalized";
    case TaylorVariant::kPlain:
      return "plain";
  }
  return "";
}

absl::StatusOr<TaylorVariant> ParseTaylorVariant(std::string_view name) {
  for (TaylorVariant v : {TaylorVariant::kNormalized, TaylorVariant::kPlain}) {
    if (name == TaylorVariantName(v)) return v;
  }
  if (name == "normalised") return TaylorVariant::kNormalized;  // as older clients spell it
  return BadName("taylorshift variant", name, kVariants);
}

std::string_view AtpDecompositionName(AtpDecomposition decomposition) {
  return decomposition == AtpDecomposition::kBlock ? "block" : "alternating";
}

absl::StatusOr<AtpDecomposition> ParseAtpDecomposition(std::string_view name) {
  if (name == "block") return AtpDecomposition::kBlock;
  if (name == "alternating") return AtpDecomposition::kAlternating;
  return BadName("atp decomposition", name, "block or alternating");
}

std::string_view AtpStorageName(AtpStorage storage) {
  switch (storage) {
    case AtpStorage::kCache:
      return "cache";
    case AtpStorage::kInt8:
      return "int8";
    case AtpStorage::kInt4:
      return "int4";
  }
  return "";
}

absl::StatusOr<AtpStorage> ParseAtpStorage(std::string_view name) {
  for (AtpStorage s : {AtpStorage::kCache, AtpStorage::kInt8, AtpStorage::kInt4}) {
    if (name == AtpStorageName(s)) return s;
  }
  return BadName("atp storage", name, kStorages);
}

std::string_view AtpReadoutName(AtpReadout readout) {
  return readout == AtpReadout::kExact ? "exact" : "linear";
}

absl::StatusOr<AtpReadout> ParseAtpReadout(std::string_view name) {
  if (name == "exact") return AtpReadout::kExact;
  if (name == "linear") return AtpReadout::kLinear;
  return BadName("atp readout", name, "exact or linear");
}

absl::StatusOr<RankPolicy> ParseRank(std::string_view text) {
  if (text == "entropy") return RankEntropy{};
  if (text.starts_with(kEnergyPrefix)) {
    double share = 0.0;
    const std::string_view digits = text.substr(kEnergyPrefix.size());
    if (!ParseDecimal(digits, share) || !(share > 0.0 && share <= 1.0)) return BadRank(text);
    return RankEnergy{share};
  }
  if (int32_t rank = 0; ParseDigits(text, rank)) {
    if (rank < 1 || rank > kMaxBlockTokens) return BadRank(text);
    return RankFixed{rank};
  }
  double fraction = 0.0;
  if (const size_t slash = text.find('/'); slash != std::string_view::npos) {
    int32_t above = 0, below = 0;
    if (!ParseDigits(text.substr(0, slash), above) || !ParseDigits(text.substr(slash + 1), below) ||
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

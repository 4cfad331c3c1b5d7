#ifndef LOWKEY_ENGINE_CONFIG_ATTENTION_OPTIONS_H_
#define LOWKEY_ENGINE_CONFIG_ATTENTION_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/config/enum_names.h"

namespace lowkey {

enum class Mechanism { kStandard, kAtp, kTaylorShift, kOptimised, kEfficient, kSuper, kLasso };
template <>
inline constexpr EnumNames kEnumNames<Mechanism> = {
    "attention mechanism",
    {"standard", "atp", "taylorshift", "optimised", "efficient", "super", "lasso"}};

// CacheStorage says how closed pages of exact keys and values are stored: as the cache stores new
// ones, or in 8 to 2 bits with a scale and a middle for every 32 numbers (quantized_kv.h).
enum class CacheStorage { kDtype, kInt8, kInt4, kInt3, kInt2 };
template <>
inline constexpr EnumNames kEnumNames<CacheStorage> = {"cache storage",
                                                       {"dtype", "int8", "int4", "int3", "int2"}};

// PrefixStorage says how whole blocks of kPrefixBlockTokens prompt tokens are kept for prompts that
// begin alike: exactly, or in a code that was calibrated for the model (docs/prefix_storage.md).
// All rows after such a block then read its keys and values as the code gives them back.
struct PrefixStorage {
  int32_t centibits = 0;  // hundredths of a bit per number: 150..800; 0: exact

  bool is_exact() const { return centibits == 0; }
  double bits() const { return centibits / 100.0; }
  bool operator==(const PrefixStorage&) const = default;
};
inline constexpr int32_t kMinCentibits = 150, kMaxCentibits = 800, kDefaultCentibits = 245;
inline constexpr int64_t kPrefixBlockTokens = 512;

// Options of mechanism `standard`. Each field's initial value is the default of requests.
struct StandardOptions {
  CacheStorage storage = CacheStorage::kDtype;
  PrefixStorage prefix_storage;
  bool operator==(const StandardOptions&) const = default;
};

// KeyStorage says how efficient holds its keys, which are rotated slices of a layer's input: beside
// the slices, which serve as values (standard's bytes); or not at all, so that slices are rotated
// wherever they are read (half of the bytes, more work). The output is the same up to rounding.
enum class KeyStorage { kRotated, kNone };
template <>
inline constexpr EnumNames kEnumNames<KeyStorage> = {"key storage", {"rotated", "none"}};

// Options of mechanism `efficient`. Each field's initial value is the default of requests.
struct EfficientOptions {
  KeyStorage key_storage = KeyStorage::kRotated;
  bool operator==(const EfficientOptions&) const = default;
};

// The heads that share one basis U of a principal block, and the matrix that U comes from: all KV
// heads of a layer, from their keys and values; one KV head, from its own; all KV heads of a layer,
// from the layer's input, which is the paper's choice. Calibrated: no block has a basis; each KV
// head has one for its keys and one for its values that were found once for the model
// (docs/calibration.md), and a few bits for each component.
enum class AtpBasis { kLayer, kKv, kInput, kCalibrated };
template <>
inline constexpr EnumNames kEnumNames<AtpBasis> = {"atp basis",
                                                   {"layer", "kv", "input", "calibrated"}};

// The rows that read far blocks compressed: only rows after the prompt, or every row.
enum class AtpPrefill { kExact, kCompressed };
template <>
inline constexpr EnumNames kEnumNames<AtpPrefill> = {"atp prefill", {"exact", "compressed"}};

// Rank of a principal block: a number, or a fraction of min(block, basis columns) in (0, 1].
struct RankFixed {
  int32_t rank = 0;  // 1..block
  bool operator==(const RankFixed&) const = default;
};
struct RankFraction {
  double fraction = 0.25;
  bool operator==(const RankFraction&) const = default;
};
// Ranks that each block finds for itself: the least rank that keeps `share` of the decomposed
// matrix's squared norm, or the components that its singular values' entropy calls for (ATP,
// Eq. 3-4).
struct RankEnergy {
  double share = 0;  // (0, 1]
  bool operator==(const RankEnergy&) const = default;
};
struct RankEntropy {
  bool operator==(const RankEntropy&) const = default;
};
using RankPolicy = std::variant<RankFraction, RankFixed, RankEnergy, RankEntropy>;

// AtpDecomposition says how U is found: by subspace iteration over matrix products, or by the
// paper's Algorithm 1.
enum class AtpDecomposition { kBlock, kAlternating };
template <>
inline constexpr EnumNames kEnumNames<AtpDecomposition> = {"atp decomposition",
                                                           {"block", "alternating"}};

// AtpStorage says how numbers of a principal block are stored: as the cache stores keys and values,
// in 8 bits, in 4 bits (U and kept tokens), or, for kept tokens of basis calibrated, as what the
// index leaves of them.
enum class AtpStorage { kCache, kInt8, kInt4, kRest };
template <>
inline constexpr EnumNames kEnumNames<AtpStorage> = {"atp storage",
                                                     {"cache", "int8", "int4", "rest"}};

// AtpReadout says how far blocks are read: token by token through U (ATP, Eq. 7), or by their first
// and second moments alone (Eq. 8, around the mean key), which needs no U and no time that grows
// with a block.
enum class AtpReadout { kExact, kLinear };
template <>
inline constexpr EnumNames kEnumNames<AtpReadout> = {"atp readout", {"exact", "linear"}};

// Says what a request wants of atp, in place of the options that say how: outputs that are nearly
// exact, a small cache, or fast tokens. Auto: nearly exact where the model is calibrated, else the
// options as they are. None: the options as they are.
enum class AtpAim { kAuto, kNone, kNearExact, kSmall, kFast };
template <>
inline constexpr EnumNames kEnumNames<AtpAim> = {"atp aim",
                                                 {"auto", "none", "near-exact", "small", "fast"}};

inline constexpr int32_t kMaxBlockTokens = 4096;

// Options of mechanism `atp` (ATP, principal keys). The table (attention_option_table.cc) has the
// ranges; each field's initial value is the default of requests.
struct AtpOptions {
  RankPolicy rank = RankFraction{0.25};
  AtpBasis basis = AtpBasis::kLayer;
  AtpPrefill prefill = AtpPrefill::kExact;
  int32_t block_tokens = 512;
  int32_t sinks = 4;          // first tokens that stay exact
  int32_t window_blocks = 1;  // newest closed blocks that are still read exactly
  AtpDecomposition decomposition = AtpDecomposition::kBlock;
  AtpStorage basis_storage = AtpStorage::kCache;      // of U
  AtpStorage principal_storage = AtpStorage::kCache;  // of K' and V'
  int32_t refine_tokens = 0;  // far tokens that each row and KV head reads exactly; readout exact
  AtpStorage kept_storage = AtpStorage::kCache;  // of the keys and values that refine reads
  AtpReadout readout = AtpReadout::kExact;
  bool merge = false;  // neighboring far blocks become one as they age; readout linear
  AtpAim aim = AtpAim::kAuto;

  bool operator==(const AtpOptions&) const = default;
};

// Constants of mechanism `lasso` ("Optimizing Attention", Eq. 2-4), which come with a model's
// weights and not with a request.
enum class LassoForm { kVanilla, kEfficient };  // Eq. 3a, Eq. 4
struct LassoOptions {
  LassoForm form = LassoForm::kEfficient;
  float lambda = 0.1f;       // weight of the l1 penalty, > 0
  float rho = 1.0f;          // > 0
  int32_t iterations = 8;    // of ADMM, 1..64
  float clamp = 4.0f;        // of coefficients, > 0
  int32_t power = 5;         // odd, 1..15
  int32_t extra_tokens = 0;  // fixed rows beside the sequence's own, 0..4096
};

// TaylorForm says how taylorshift holds older tokens: as keys and values that are read one by one
// (direct); as one state of fixed size (recurrent); or as keys and values up to the length from
// which the state costs no more (auto).
enum class TaylorForm { kAuto, kDirect, kRecurrent };
template <>
inline constexpr EnumNames kEnumNames<TaylorForm> = {"taylorshift form",
                                                     {"auto", "direct", "recurrent"}};

// The score s whose weight is 1 + s + s^2 / 2. Normalized: tau q/|q| . k/|k|, and a row's output
// times sqrt(visible tokens / head_dim). Plain: q . k / sqrt(key_dim). Auto: the one that the
// model's weights were trained for; normalized where the model does not say.
enum class TaylorVariant { kNormalized, kPlain, kAuto };
template <>
inline constexpr EnumNames kEnumNames<TaylorVariant> = {
    "taylorshift variant", {"normalized", "plain", "auto"}, "normalised"};

// Options of mechanism `taylorshift`. Each field's initial value is the default of requests.
struct TaylorShiftOptions {
  TaylorForm form = TaylorForm::kAuto;
  TaylorVariant variant = TaylorVariant::kAuto;
  bool operator==(const TaylorShiftOptions&) const = default;
};

struct AttentionOptions {
  Mechanism mechanism = Mechanism::kStandard;
  AtpOptions atp;                   // read only when mechanism is kAtp
  TaylorShiftOptions taylorshift;   // read only when mechanism is kTaylorShift
  StandardOptions standard = {};    // read only when mechanism is kStandard
  EfficientOptions efficient = {};  // read only when mechanism is kEfficient
  bool operator==(const AttentionOptions&) const = default;
};

// INVALID_ARGUMENT naming the mechanism's option, its value and its range.
absl::Status ValidateAttentionOptions(const AttentionOptions& options);

// Every mechanism, standard first.
absl::Span<const Mechanism> AllMechanisms();

// The mechanism's options under which it computes one function, up to rounding, over different
// caches; its defaults first.
std::vector<AttentionOptions> EqualOptions(Mechanism mechanism);

// Returns whether outputs stand in for those of softmax attention with the same weights and may
// differ from them by more than rounding. Mechanisms that run only with weights trained for them
// stand in for nothing.
bool IsApproximate(const AttentionOptions& options);

inline std::string_view MechanismName(Mechanism mechanism) { return NameOf(mechanism); }
inline absl::StatusOr<Mechanism> ParseMechanism(std::string_view name) {
  return ParseName<Mechanism>(name);
}

// "exact"; "calibrated" for 2.45 bits per number; "calibrated:3.3" for as many, 1.5..8 with at most
// two decimals. INVALID_ARGUMENT for any other text.
absl::StatusOr<PrefixStorage> ParsePrefixStorage(std::string_view text);

// Text that ParsePrefixStorage reads back to the same: "exact" or "calibrated:2.45".
std::string PrefixStorageString(const PrefixStorage& storage);

// "16" is a fixed rank; "1/4" and "0.25" are fractions ("1.0" and "1/1" are the fraction one);
// "energy:0.95" keeps that share of the squared norm; "entropy".
// INVALID_ARGUMENT for any other text.
absl::StatusOr<RankPolicy> ParseRank(std::string_view text);

// Text that ParseRank reads back to the same policy.
std::string RankString(const RankPolicy& rank);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_ATTENTION_OPTIONS_H_

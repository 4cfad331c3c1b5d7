#ifndef LOWKEY_ENGINE_CONFIG_ATTENTION_OPTIONS_H_
#define LOWKEY_ENGINE_CONFIG_ATTENTION_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lowkey {

enum class Mechanism { kStandard, kAtp, kTaylorShift, kOptimised, kEfficient, kSuper, kLasso };

// What shares one basis U of a principal block (attention.md "ATP"), and where U comes from: all KV
// heads of a layer, from their keys and values; one KV head, from its own; all KV heads of a layer,
// from the layer's input, which is the paper's choice.
enum class AtpBasis { kLayer, kKv, kInput };

// Which rows read far blocks compressed: only rows after the prompt, or every row.
enum class AtpPrefill { kExact, kCompressed };

// Rank of a principal block: a number, or a fraction of min(block, basis columns) in (0, 1].
struct RankFixed {
  int32_t rank = 0;  // 1..block
  bool operator==(const RankFixed&) const = default;
};
struct RankFraction {
  double fraction = 0.25;
  bool operator==(const RankFraction&) const = default;
};
// Ranks that each block finds for itself: the least that keeps `share` of the squared norm of what
// is decomposed, or the components that its singular values' entropy calls for (ATP, Eq. 3-4).
struct RankEnergy {
  double share = 0;  // (0, 1]
  bool operator==(const RankEnergy&) const = default;
};
struct RankEntropy {
  bool operator==(const RankEntropy&) const = default;
};
using RankPolicy = std::variant<RankFraction, RankFixed, RankEnergy, RankEntropy>;

// How U is found: subspace iteration over matrix products, or the paper's Algorithm 1.
enum class AtpDecomposition { kBlock, kAlternating };

// How closed pages of exact keys and values are stored: as the cache stores what is new, or in 8 or
// 4 bits with a scale and a middle for every 32 numbers (quantized_kv.h).
enum class CacheStorage { kDtype, kInt8, kInt4 };

// Options of mechanism `standard`. Every field has the default that a request without it gets.
struct StandardOptions {
  CacheStorage storage = CacheStorage::kDtype;
  bool operator==(const StandardOptions&) const = default;
};

// How numbers of a principal block are stored: as the cache stores keys and values, in 8 bits, or
// (U alone) in 4 bits with a scale for every 32.
enum class AtpStorage { kCache, kInt8, kInt4 };

// How far blocks are read: token by token through U (ATP, Eq. 7), or by their first and second
// moments alone (Eq. 8, around the mean key), which needs no U and no time that grows with a block.
enum class AtpReadout { kExact, kLinear };

// Options of mechanism `atp` (ATP, principal keys). Every field has the default that a request
// without it gets.
struct AtpOptions {
  RankPolicy rank = RankFraction{0.25};
  AtpBasis basis = AtpBasis::kLayer;
  AtpPrefill prefill = AtpPrefill::kExact;
  int32_t block_tokens = 512;  // multiple of 64 in [64, 4096]
  int32_t sinks = 4;           // 0..min(64, block) - 1
  int32_t window_blocks = 1;   // closed blocks still read exactly, 0..64
  AtpDecomposition decomposition = AtpDecomposition::kBlock;
  AtpStorage basis_storage = AtpStorage::kCache;      // of U
  AtpStorage principal_storage = AtpStorage::kCache;  // of K' and V'
  int32_t refine_tokens = 0;  // far tokens that each row and KV head reads exactly, 0..4096;
                              // readout exact
  AtpStorage kept_storage = AtpStorage::kCache;  // of the keys and values that refine reads
  AtpReadout readout = AtpReadout::kExact;
  bool merge = false;  // neighboring far blocks become one as they age; readout linear

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

// How taylorshift holds older tokens: keys and values, read one by one (direct); one state of
// fixed size (recurrent); or keys and values up to the length from which the state costs no more
// (auto).
enum class TaylorForm { kAuto, kDirect, kRecurrent };

// The score s whose weight is 1 + s + s^2 / 2. Normalized: tau q/|q| . k/|k|, and a row's output
// times sqrt(visible tokens / head_dim). Plain: q . k / sqrt(head_dim).
enum class TaylorVariant { kNormalized, kPlain };

// Options of mechanism `taylorshift`. Every field has the default that a request without it gets.
struct TaylorShiftOptions {
  TaylorForm form = TaylorForm::kAuto;
  TaylorVariant variant = TaylorVariant::kNormalized;
  bool operator==(const TaylorShiftOptions&) const = default;
};

struct AttentionOptions {
  Mechanism mechanism = Mechanism::kStandard;
  AtpOptions atp;                  // read only when mechanism is kAtp
  TaylorShiftOptions taylorshift;  // read only when mechanism is kTaylorShift
  StandardOptions standard = {};   // read only when mechanism is kStandard
  bool operator==(const AttentionOptions&) const = default;
};

// INVALID_ARGUMENT naming the field, its value and its range.
absl::Status ValidateAttentionOptions(const AttentionOptions& options);

// Every mechanism, standard first.
absl::Span<const Mechanism> AllMechanisms();

// Whether outputs may differ from softmax attention over every visible token with the mechanism's
// own weights by more than rounding.
bool IsApproximate(const AttentionOptions& options);

// "standard", "atp", "optimised", ... Parse: INVALID_ARGUMENT naming the value and the known
// names.
std::string_view MechanismName(Mechanism mechanism);
absl::StatusOr<Mechanism> ParseMechanism(std::string_view name);

// "dtype" | "int8" | "int4".
std::string_view CacheStorageName(CacheStorage storage);
absl::StatusOr<CacheStorage> ParseCacheStorage(std::string_view name);

// "layer" | "kv" | "input", "exact" | "compressed".
std::string_view AtpBasisName(AtpBasis basis);
absl::StatusOr<AtpBasis> ParseAtpBasis(std::string_view name);
std::string_view AtpPrefillName(AtpPrefill prefill);
absl::StatusOr<AtpPrefill> ParseAtpPrefill(std::string_view name);

// "auto" | "direct" | "recurrent", "normalized" | "plain".
std::string_view TaylorFormName(TaylorForm form);
absl::StatusOr<TaylorForm> ParseTaylorForm(std::string_view name);
std::string_view TaylorVariantName(TaylorVariant variant);
absl::StatusOr<TaylorVariant> ParseTaylorVariant(std::string_view name);

// "block" | "alternating", "cache" | "int8" | "int4".
std::string_view AtpDecompositionName(AtpDecomposition decomposition);
absl::StatusOr<AtpDecomposition> ParseAtpDecomposition(std::string_view name);
std::string_view AtpStorageName(AtpStorage storage);
absl::StatusOr<AtpStorage> ParseAtpStorage(std::string_view name);

// "exact" | "linear".
std::string_view AtpReadoutName(AtpReadout readout);
absl::StatusOr<AtpReadout> ParseAtpReadout(std::string_view name);

// "16" is a fixed rank; "1/4" and "0.25" are fractions ("1.0" and "1/1" are the fraction one);
// "energy:0.95" keeps that share of the squared norm; "entropy".
// INVALID_ARGUMENT otherwise.
absl::StatusOr<RankPolicy> ParseRank(std::string_view text);

// Text that ParseRank reads back to the same policy.
std::string RankString(const RankPolicy& rank);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_ATTENTION_OPTIONS_H_

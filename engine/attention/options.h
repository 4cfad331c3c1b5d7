#ifndef LOWKEY_ENGINE_ATTENTION_OPTIONS_H_
#define LOWKEY_ENGINE_ATTENTION_OPTIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

enum class Mechanism { kStandard, kAtp };

// What shares one basis U of a principal block (attention.md "ATP"): all KV heads of a layer, or
// one KV head.
enum class AtpBasis { kLayer, kKv };

// Which rows read far blocks compressed: only rows after the prompt, or every row.
enum class AtpPrefill { kExact, kCompressed };

// Rank of a principal block: a number, or a fraction of min(block, basis columns) in (0, 1].
struct RankFixed {
  int32_t rank = 0;  // 1..block
};
struct RankFraction {
  double fraction = 0.25;
};
using RankPolicy = std::variant<RankFraction, RankFixed>;

// Options of mechanism `atp` (ATP, principal keys). Every field has the default that a request
// without it gets.
struct AtpOptions {
  RankPolicy rank = RankFraction{0.25};
  AtpBasis basis = AtpBasis::kLayer;
  AtpPrefill prefill = AtpPrefill::kExact;
  int32_t block_tokens = 512;  // multiple of 64 in [64, 4096]
  int32_t sinks = 4;           // 0..min(64, block) - 1
  int32_t window_blocks = 1;   // closed blocks still read exactly, 0..64
};

struct AttentionOptions {
  Mechanism mechanism = Mechanism::kStandard;
  AtpOptions atp;  // read only when mechanism is kAtp
};

// INVALID_ARGUMENT naming the field, its value and its range.
absl::Status ValidateAttentionOptions(const AttentionOptions& options);

// "standard", "atp". Parse: INVALID_ARGUMENT naming the value and the known names.
std::string_view MechanismName(Mechanism mechanism);
absl::StatusOr<Mechanism> ParseMechanism(std::string_view name);

// "layer" | "kv", "exact" | "compressed".
std::string_view AtpBasisName(AtpBasis basis);
absl::StatusOr<AtpBasis> ParseAtpBasis(std::string_view name);
std::string_view AtpPrefillName(AtpPrefill prefill);
absl::StatusOr<AtpPrefill> ParseAtpPrefill(std::string_view name);

// "16" is a fixed rank; "1/4" and "0.25" are fractions ("1.0" and "1/1" are the fraction one).
// INVALID_ARGUMENT otherwise.
absl::StatusOr<RankPolicy> ParseRank(std::string_view text);

// Text that ParseRank reads back to the same policy.
std::string RankString(const RankPolicy& rank);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_OPTIONS_H_

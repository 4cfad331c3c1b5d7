#ifndef LOWKEY_ENGINE_ATTENTION_STANDARD_PREFIX_CODES_H_
#define LOWKEY_ENGINE_ATTENTION_STANDARD_PREFIX_CODES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/attention/geometry.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/lowrank/principal_basis.h"
#include "engine/lowrank/principal_code.h"

namespace lowkey {

// The calibrated codes of a model's keys before RoPE and of its values, layer by layer, for groups
// of KV heads. Immutable: any thread may read.
struct PrefixCodes {
  HeadGroup group;  // every group's: KV heads g * group.n_heads .. are group g
  int64_t n_layers = 0, n_groups = 0;
  std::vector<double> inverse_frequencies;  // [key_dim / 2], angle a position
  std::vector<PrincipalCode> codes;         // [n_layers][n_groups]

  const PrincipalCode& code(int64_t layer, int64_t group_index) const {
    return codes[layer * n_groups + group_index];
  }
  int64_t size_bytes() const;
  // FAILED_PRECONDITION when the codes are for a model of another shape.
  absl::Status CheckFits(const AttentionGeometry& geometry) const;
};

// The bits of all codes for one number of bits: [n_layers][n_groups], as PrefixCodes::codes.
using PrefixBits = std::vector<BitPlan>;
PrefixBits PlanPrefixBits(const PrefixCodes& codes, double bits_per_number);

// The rotations of the 64 positions of a page, for KernelTable::RotateColumns: [key_dim / 2][64].
struct PageRotation {
  PageRotation(const PrefixCodes& codes, int64_t page);

  std::vector<float> cos, sin, minus_sin;
};

// Scratch of one thread, which keeps its memory between calls.
struct PageCodeScratch {
  std::vector<float> x, rotated;
  PrincipalScratch code;
};

// One group's share of a page at one layer.
struct CodedShare {
  const AttentionGeometry& geometry;
  const PrefixCodes& codes;
  const PrefixBits& bits;
  const PageRotation& rotation;  // the page's
  std::byte* page = nullptr;     // laid out as paged_kv.h says
  int64_t layer = 0, group = 0;
};

// Appends the code of the share's 64 tokens, all of which are written, to `out`.
void EncodeShare(const CodedShare& share, PageCodeScratch& scratch, std::vector<std::byte>& out);

// Writes the share's keys, rotated, and values, in the cache's type, from what EncodeShare
// appended. The same bytes give the same bits. INVALID_ARGUMENT for bytes of another size; the page
// is then as it was.
absl::Status DecodeShare(const CodedShare& share, absl::Span<const std::byte> bytes,
                         PageCodeScratch& scratch);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_STANDARD_PREFIX_CODES_H_

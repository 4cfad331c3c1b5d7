#ifndef LOWKEY_ENGINE_KERNELS_CODED_WEIGHT_H_
#define LOWKEY_ENGINE_KERNELS_CODED_WEIGHT_H_

// Weights whose numbers are small integers, called codes: GGUF's quantized blocks, kept as the file
// stores them, and our int8. Successive inputs of an output form groups that share a scale:
//
//   weight = scale_g * code + add_g
//
// A row meets such a weight in integers. Its numbers become codes of 8 or 16 bits with a scale for
// each group (CodeRow in cpu/code_rows_inl.h), and an output is computed group by group, in order,
// from 0:
//
//   isum = sum over the group of (weight code x row code), exact in 32 bits
//   y = fma(float(isum) x row scale, scale_g, y)
//   y = fma(row scale x float(sum of row codes), add_g, y)     where the format has add_g
//
// Sums of integers are exact in any order, so all instruction sets give the same bits. Rows of 16
// bits add nothing to a weight's own error. Rows of 8 bits are twice as fast and add a twentieth to
// that of 4-bit weights (KL divergence from fp32, SmolLM2-135M: 0.493 against 0.474). Q8_0, the
// format of files, meets rows of 8 bits, as in the program that made it; our own int8 meets rows of
// 16.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/tensor.h"

namespace lowkey {

// kInt4 are the codes of AWQ and GPTQ: groups with a zero point.
enum class CodeFormat { kInt8, kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ4_K, kQ5_K, kQ6_K, kInt4 };
inline constexpr int kNumCodeFormats = 10;

// A format's numbers. A block is what GGUF calls a block: successive inputs of one output with a
// header of their own.
struct CodeShape {
  int bits;          // of a stored code
  int row_bits;      // of a row's codes: 8 or 16
  int zero;          // the stored code less this is the code; codes of 8 bits are signed instead
  int64_t block;     // inputs
  int64_t group;     // inputs that share scale_g
  bool stores_add;   // the block has a second scale, of add_g
  int sub_bytes;     // of the block's header for each group: factors of the scale [and of add_g]
  bool is_negative;  // add_g is stored with the other sign
  bool is_bfloat16;  // the block's scale; else IEEE half precision
  bool stores_zero = false;  // the block has a zero point in 8 bits: add_g is -zero point * scale_g

  constexpr bool has_add() const { return stores_add || stores_zero; }
  // Steps whose codes lie side by side for an output: as many as fill 32 bits of a row.
  constexpr int64_t side() const { return 32 / row_bits; }
  // Bytes that a block of one output takes.
  constexpr int64_t header_bytes() const {
    return (stores_add ? 4 : 2) + (stores_zero ? 1 : 0) + block / group * sub_bytes;
  }
  constexpr int64_t bytes() const { return header_bytes() + block * bits / 8; }
};

// Indexed by CodeFormat.
inline constexpr CodeShape kCodeShapes[kNumCodeFormats] = {
    {8, 16, 0, 64, 64, false, 0, false, true},       // kInt8
    {4, 8, 8, 32, 32, false, 0, false, false},       // kQ4_0
    {4, 8, 0, 32, 32, true, 0, false, false},        // kQ4_1
    {5, 16, 16, 32, 32, false, 0, false, false},     // kQ5_0
    {5, 16, 0, 32, 32, true, 0, false, false},       // kQ5_1
    {8, 8, 0, 32, 32, false, 0, false, false},       // kQ8_0
    {4, 8, 0, 256, 32, true, 2, true, false},        // kQ4_K
    {5, 16, 0, 256, 32, true, 2, true, false},       // kQ5_K
    {6, 16, 32, 256, 16, false, 1, false, false},    // kQ6_K
    {4, 8, 0, 32, 32, false, 0, true, false, true},  // kInt4
};
constexpr const CodeShape& ShapeOf(CodeFormat format) {
  return kCodeShapes[static_cast<int>(format)];
}

// Returns the format that keeps a matrix's codes and scales as they are stored. nullopt for types
// without one, and for AWQ's and GPTQ's where groups are no whole blocks of neighbors or scales are
// not in half precision.
std::optional<CodeFormat> CodeFormatOf(const TensorView& matrix);
std::string_view CodeFormatName(CodeFormat format);  // "int8", "Q4_K"

// A packed weight is a sequence of panels of `panel` outputs, and a panel a sequence of blocks:
//   scales [panel] (16 bits), [scales of add_g [panel],] [zero points [panel] (8 bits),] factors of
//   the scales [groups][panel] (int8), [factors of add_g [groups][panel],] codes.
// Codes come in units of 32 inputs. In a unit, code (k, output) has the place
// (k / side * panel + output) * side + k % side. Of 8 bits the codes lie at their places. Of fewer,
// byte j of the first 16 * panel holds the low four bits of places j (its low half) and j + 16 *
// panel; then come the fifth bits, bit i of byte j of place j + 4 * panel * i, or the two bits
// above the low four, bits 2 i and 2 i + 1 of byte j of place j + 8 * panel * i.
inline constexpr int64_t kCodeUnit = 32;

// A row of a matrix: an output of a weight.
struct MatrixRow {
  const TensorView* matrix = nullptr;
  int64_t row = 0;
};

// Packs at most `panel` rows as the outputs of a panel that begins as zeros. Blocks are kept as
// they are, and the matrices have the format's type; kInt8 rounds any numbers (narrow_weight.h).
void PackCodes(absl::Span<const MatrixRow> rows, CodeFormat format, int64_t panel, std::byte* out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CODED_WEIGHT_H_

#ifndef LOWKEY_ENGINE_LOWRANK_PRINCIPAL_CODE_H_
#define LOWKEY_ENGINE_LOWRANK_PRINCIPAL_CODE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/lowrank/codebook.h"

namespace lowkey {

// The number of vectors that are coded together: the tokens of a cache page.
inline constexpr int64_t kCodedTokens = 64;

// A vector's components are divided by one of these before they are quantized.
inline constexpr float kCodeGains[] = {0.8f, 1.1f, 1.6f, 2.8f};
inline constexpr int kCodeGainBits = 2;
inline constexpr int64_t kCodeGainBytes = kCodedTokens * kCodeGainBits / 8;

// A basis for vectors x [dim] of one kind, such as the keys and values of some KV heads of a layer.
// The components y = encode (x - mean) are uncorrelated, with the variances below, and x = mean +
// decode y. An error of y counts as much as the calibration says that it matters
// (principal_basis.h). Immutable: any thread may read.
struct PrincipalCode {
  int64_t dim = 0;
  std::vector<float> mean;       // [dim]
  std::vector<float> variances;  // [dim], descending, >= 0
  std::vector<uint16_t> encode;  // [dim][dim], bf16: row i gives component i
  std::vector<uint16_t> decode;  // [dim][dim], bf16: row j gives number j of x

  int64_t size_bytes() const {
    return static_cast<int64_t>((mean.size() + variances.size()) * sizeof(float) +
                                (encode.size() + decode.size()) * sizeof(uint16_t));
  }
};

// The bits that each component of a code has, and what follows from them.
struct BitPlan {
  // Components are quantized for this density, once a gain divides them. They are nearly Gaussian,
  // but the longer tail of a Laplacian loses less where no vector is read exactly.
  Density density = Density::kLaplacian;
  std::vector<uint8_t> bits;  // [dim], 0..8, descending
  int64_t n_coded = 0;        // components that have bits: the first ones
  double expected_error = 0;  // sum over components of variance times distortion
  int64_t fixed_bytes = 0;    // of 64 coded vectors, without escapes
  int64_t escape_bytes = 0;   // of each vector that escapes, in addition

  int64_t max_bytes() const { return fixed_bytes + kCodedTokens * escape_bytes; }
};

// Gives floor(bits_per_number * dim) bits to components of descending variances, each where it
// lowers the expected error most. Components without variance get none. bits_per_number >= 0.
BitPlan PlanBits(absl::Span<const float> variances, double bits_per_number);

// Returns the most bytes that 64 vectors take under any plan of so many bits.
int64_t MaxCodeBytes(int64_t dim, double bits_per_number);

// Scratch of one thread, which keeps its memory between calls.
struct PrincipalScratch {
  std::vector<float> matrix, centered, components, errors;
};

// Encodes 64 vectors, the columns of x [dim][64], and appends the code to `out`:
//   the components that have bits, one after the other: 64 indices into the codebook of so many
//     bits, little-endian bits without gaps
//   64 gains of 2 bits, each an index into {0.8, 1.1, 1.6, 2.8}
//   64 bits: whether a vector escapes
//   the vectors that escape: a scale (float) for every 32 numbers of x - mean, then the numbers
//     in int8
// A vector has the gain with which its error is least, and escapes when the error exceeds 4 times
// the expected one. A vector with numbers that are not finite escapes; the 32 numbers around each
// of those decode to NaN.
//
// All sums have one order: the bytes depend on code, plan, x and the kernel table alone.
void EncodeVectors(const PrincipalCode& code, const BitPlan& plan, const float* x,
                   PrincipalScratch& scratch, std::vector<std::byte>& out);

// The same for a Gaussian and without escapes: the first components of 64 vectors, as indices.
struct CodedComponents {
  std::vector<uint8_t> bits;                  // of each component, 1..8: at most the code's dim
  std::vector<uint8_t> indices;               // [bits.size()][64], into the codebook of its bits
  std::array<uint8_t, kCodedTokens> gains{};  // indices into kCodeGains
};
void EncodeComponents(const PrincipalCode& code, const float* x, PrincipalScratch& scratch,
                      CodedComponents& out);

// Decodes what EncodeVectors appended with the same code and plan into x [dim][64]. The same bytes
// give the same bits. INVALID_ARGUMENT, and x is untouched, when the size is not the one that the
// bytes themselves call for.
absl::Status DecodeVectors(const PrincipalCode& code, const BitPlan& plan,
                           absl::Span<const std::byte> bytes, PrincipalScratch& scratch, float* x);

// Returns the error of DecodeVectors for these bytes.
absl::Status CheckVectors(const BitPlan& plan, absl::Span<const std::byte> bytes);

// Returns how many of the 64 vectors escape. `bytes` is a code that DecodeVectors takes.
int64_t CountEscapes(const BitPlan& plan, absl::Span<const std::byte> bytes);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOWRANK_PRINCIPAL_CODE_H_

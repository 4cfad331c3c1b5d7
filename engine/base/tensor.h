#ifndef LOWKEY_ENGINE_BASE_TENSOR_H_
#define LOWKEY_ENGINE_BASE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/codes/grouped_codes.h"
#include "engine/base/dtype.h"

namespace lowkey {

// A read-only, row-major tensor in memory that somebody else owns (usually a mapped file). The data
// may be unaligned: read elements with memcpy or LoadFloats.
struct TensorView {
  DType dtype = DType::kF32;
  // Each size is >= 0; their product fits int64; the last is whole blocks of the dtype.
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  // If > 0, a matrix's rows come in groups of this number (a head's rows), which divides them: the
  // first half of a group is stored at its even places, the rest at the odd ones. LoadRow undoes
  // it.
  int64_t interleaved_rows = 0;
  // Set in matrices of kAwq4, kGptq4 and kGptq8 alone, whose codes `data` is: only LoadRow reads
  // those.
  std::shared_ptr<const GroupedCodes> grouped = nullptr;

  int64_t size() const;
  size_t size_bytes() const {
    return static_cast<size_t>(size() / DTypeBlockSize(dtype)) * DTypeBytes(dtype);
  }
};

// Returns `unit` times all sizes; nullopt when a size is negative, or the product is 2^63 or more.
std::optional<int64_t> CheckedProduct(int64_t unit, const std::vector<int64_t>& sizes);

// Returns text like "[4096, 1024]".
std::string ShapeString(const std::vector<int64_t>& shape);

// Returns the place where row `row` of a matrix is stored.
int64_t StoredRow(const TensorView& t, int64_t row);

// Writes row `row` of a matrix [n_rows, n], wherever it is stored, as floats to out [n].
void LoadRow(const TensorView& t, int64_t row, float* out);

// Writes elements [begin, begin + count), in stored order, as floats to out. Takes any dtype but
// the integers, kAwq4, kGptq4 and kGptq8, and only whole blocks (rows always are).
void LoadFloats(const TensorView& t, int64_t begin, int64_t count, float* out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_TENSOR_H_

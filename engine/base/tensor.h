#ifndef LOWKEY_ENGINE_BASE_TENSOR_H_
#define LOWKEY_ENGINE_BASE_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/dtype.h"

namespace lowkey {

// A read-only, row-major tensor in memory that somebody else owns (usually a mapped file). The data
// may be unaligned: read elements with memcpy or LoadFloat.
struct TensorView {
  DType dtype = DType::kF32;
  // Each >= 0; the product fits int64; the last is whole blocks of the dtype.
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  // > 0: of a matrix's every so many rows (those of a head), the first half is stored at the even
  // places and the second half at the odd ones. Divides the rows; LoadRow undoes it.
  int64_t interleaved_rows = 0;

  int64_t size() const;
  size_t size_bytes() const {
    return static_cast<size_t>(size() / DTypeBlockSize(dtype)) * DTypeBytes(dtype);
  }
};

// "[4096, 1024]".
std::string ShapeString(const std::vector<int64_t>& shape);

// Element `index` (row-major order) as a float. dtype must be F32, F16 or BF16.
float LoadFloat(const TensorView& t, int64_t index);

// Row `row` of a matrix [n_rows, n], wherever it is stored, as floats into out [n].
void LoadRow(const TensorView& t, int64_t row, float* out);

// Elements [begin, begin + count), as stored, as floats into out: any dtype but the integers, whole
// blocks (rows always are).
void LoadFloats(const TensorView& t, int64_t begin, int64_t count, float* out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_TENSOR_H_

#include "engine/base/tensor.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/codes/quantized.h"
#include "engine/base/status_macros.h"

namespace lowkey {

int64_t TensorView::size() const {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::optional<int64_t> CheckedProduct(int64_t unit, const std::vector<int64_t>& sizes) {
  int64_t product = unit;
  for (int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) return std::nullopt;
  }
  return product;
}

std::string ShapeString(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

int64_t StoredRow(const TensorView& t, int64_t row) {
  if (t.interleaved_rows == 0) return row;
  const int64_t half = t.interleaved_rows / 2, in_group = row % t.interleaved_rows;
  return row - in_group + (in_group < half ? 2 * in_group : 2 * (in_group - half) + 1);
}

void LoadRow(const TensorView& t, int64_t row, float* out) {
  if (t.grouped != nullptr) {
    LoadRow(*t.grouped, row, out);
    return;
  }
  LoadFloats(t, StoredRow(t, row) * t.shape[1], t.shape[1], out);
}

void LoadFloats(const TensorView& t, int64_t begin, int64_t count, float* out) {
  if (count == 0) return;  // an empty tensor may have no address
  const int64_t block_size = DTypeBlockSize(t.dtype);
  LK_CHECK(begin % block_size == 0 && count % block_size == 0);
  const std::byte* p = t.data + static_cast<size_t>(begin / block_size) * DTypeBytes(t.dtype);
  if (block_size > 1) {
    Dequantize(t.dtype, p, count / block_size, out);
    return;
  }
  if (t.dtype == DType::kF32) {
    std::memcpy(out, p, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  LK_CHECK(t.dtype == DType::kF16 || t.dtype == DType::kBF16);
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, p + 2 * i, sizeof(bits));
    out[i] = t.dtype == DType::kBF16 ? ToFloat(BFloat16{bits}) : HalfToFloat(bits);
  }
}

}  // namespace lowkey

#ifndef LOWKEY_ENGINE_KERNELS_LINEAR_H_
#define LOWKEY_ENGINE_KERNELS_LINEAR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/buffer.h"
#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// A weight [n_out, n_in] (row-major in the checkpoint) packed for products with fp32 rows. It is a
// sequence of panels of panel_columns outputs, the last one padded with zeros. A panel is
//   fp32  [n_in][panel]
//   bf16  [n_in / 2][panel][2], an odd n_in padded with zeros
//   int8  for every 64 inputs their scales [panel] in bf16 and codes [64][panel] (narrow_weight.h),
//         n_in padded with zeros
// Move-only; immutable after Pack, so any thread may read it.
class PackedWeight {
 public:
  PackedWeight() = default;

  // Stacks `parts` ([n_out_i, n_in] each, same n_in, any dtype that LoadRow reads) along n_out and
  // packs them as `type`, which is not kFloat8. RESOURCE_EXHAUSTED when the memory cannot be had.
  static absl::StatusOr<PackedWeight> Pack(absl::Span<const TensorView> parts, StorageType type,
                                           ThreadPool& pool,
                                           const KernelTable& kernels = Kernels());

  int64_t n_in() const { return n_in_; }
  int64_t n_out() const { return n_out_; }
  // The number of columns that Linear writes: n_out rounded up to whole panels.
  int64_t n_out_padded() const { return n_out_padded_; }
  StorageType type() const { return type_; }
  int64_t size_bytes() const { return static_cast<int64_t>(data_.size_bytes()); }
  const std::byte* data() const { return data_.data(); }
  const KernelTable& kernels() const { return *kernels_; }
  // Whether rows are rounded to bf16 before they meet this weight.
  bool rounds_activations() const {
    return type_ == StorageType::kBFloat16 && kernels_->rounds_activations;
  }
  // n_in, made even for bf16 pairs.
  int64_t n_in_padded() const {
    return type_ == StorageType::kBFloat16 ? (n_in_ + 1) / 2 * 2 : n_in_;
  }

 private:
  const KernelTable* kernels_ = nullptr;
  int64_t n_in_ = 0, n_out_ = 0, n_out_padded_ = 0;
  StorageType type_ = StorageType::kFloat32;
  Buffer data_;
};

// Computes y [n_rows, n_out_padded] = x [n_rows, n_in] W^T; row i of x is at x + i * ldx, row i of y
// at y + i * ldy, ldy >= n_out_padded. A row's bits do not depend on n_rows or on the pool's size.
void Linear(const PackedWeight& w, const float* x, int64_t ldx, int64_t n_rows, float* y,
            int64_t ldy, ThreadPool& pool);

// Returns a leading dimension for rows of n floats. Rows a multiple of 2 KiB apart would crowd a
// few of the cache's sets (512 rows of 16 KiB: 66% of peak, 77% a line further apart).
inline int64_t RowStride(int64_t n) { return n % 512 == 0 ? n + 16 : n; }

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_LINEAR_H_

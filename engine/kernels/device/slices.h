#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_SLICES_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_SLICES_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/device/device.h"

namespace lowkey {

// Attention over pages of column tiles (engine/attention/slices/host.h) on a device. All pointers
// are the device's. Sums over the tokens that a row reads run on an absolute grid of tokens, so
// that the row's bits depend on its own sequence alone.

// One segment of a step.
struct SliceSequence {
  int64_t first_position = 0;
  int64_t first_row = 0;         // row of the step
  int64_t first_page_entry = 0;  // where SliceStep::pages has the segment's page 0
};

// A row of the step, or consecutive rows that are computed together.
struct SliceRows {
  int32_t sequence = 0;
  int32_t first_row = 0;  // row of the segment
  int32_t n_rows = 0;     // 0: the entry does nothing
};

// The arguments that all kernels of a step share at one layer.
struct SliceStep {
  int64_t layer = 0;
  int64_t n_heads = 0;  // query heads
  int64_t n_kv_heads = 0;
  bool has_keys = false;  // false: keys are the values' tiles, rotated
  int64_t head_dim = 0;
  bool is_aligned = false;  // values are read from separate tiles
  StorageType cache_type = StorageType::kFloat32;
  const SliceSequence* sequences = nullptr;
  // A page holds, for each layer, tiles [head_dim, 64] of keys, of values and of aligned values.
  std::byte* const* pages = nullptr;
};

// Caches the keys and values of rows.
struct SliceWriteArgs {
  SliceStep step;
  const SliceRows* rows = nullptr;  // each has one row
  int64_t n_rows = 0;
  // Row i of the step is at keys + i * ld, and so for values.
  const float* keys = nullptr;
  const float* values = nullptr;
  int64_t ld = 0;
};

// The most rows that are aligned together, and that attend together.
inline constexpr int64_t kSliceAlignRows = 8;
inline constexpr int64_t kSliceAttendRows = 4;

// Caches V' = tril(Wa) V for rows.
struct SliceAlignArgs {
  SliceStep step;
  const SliceRows* rows = nullptr;
  int64_t n_blocks = 0;
  const void* weights = nullptr;  // [l (l + 1) / 2], the packed rows of Wa
  StorageType weight_type = StorageType::kFloat32;
};

// Attention by the softmax of scores over sqrt(head_dim).
struct SliceAttendArgs {
  SliceStep step;
  const SliceRows* rows = nullptr;
  int64_t n_blocks = 0;
  int64_t max_rows = 0;   // rows of a block: 1 or kSliceAttendRows
  int64_t n_visible = 0;  // a row sees itself and n_visible - 1 tokens before it
  // Where keys are rotated: for each page cosines, then sines, [head_dim / 2, 64].
  const float* rotations = nullptr;
  const float* q = nullptr;  // row i of the step is at q + i * ld_q
  int64_t ld_q = 0;
  float* out = nullptr;
  int64_t ld_out = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_SLICES_H_

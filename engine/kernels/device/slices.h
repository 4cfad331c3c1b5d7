#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_SLICES_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_SLICES_H_

#include <cstddef>
#include <cstdint>

#include "engine/kernels/device/device.h"

namespace lowkey {

// Attention over pages of column tiles (engine/attention/slices/host.h) on a device. All
// pointers are the device's. What a row reads is added up on an absolute grid of tokens, so that
// its bits depend on its own sequence alone.

// One segment of a step.
struct SliceSequence {
  int64_t first_position = 0;
  int64_t first_row = 0;         // of the step's rows
  int64_t first_page_entry = 0;  // of SliceStep::pages: its page 0
};

// A row of the step, or consecutive ones that are computed together.
struct SliceRows {
  int32_t sequence = 0;
  int32_t first_row = 0;  // of the segment
  int32_t n_rows = 0;
};

// What every kernel of a step at one layer is given.
struct SliceStep {
  int64_t layer = 0;
  int64_t n_heads = 0;        // of queries
  int64_t n_value_heads = 0;  // n_heads slices, or projected
  int64_t n_key_heads = 0;    // projected; 0: keys are the values' tiles, rotated
  int64_t head_dim = 0;
  bool is_aligned = false;  // values are read from tiles of their own
  StorageType cache_type = StorageType::kFloat32;
  const SliceSequence* sequences = nullptr;
  // Pages of layers times [keys, values, aligned], tiles [head_dim, 64].
  std::byte* const* pages = nullptr;
};

// Caches rows' keys and values.
struct SliceWriteArgs {
  SliceStep step;
  const SliceRows* rows = nullptr;  // one by one
  int64_t n_rows = 0;
  // Row i of the step at keys + i * ld_keys and so on.
  const float* keys = nullptr;
  int64_t ld_keys = 0;
  const float* values = nullptr;
  int64_t ld_values = 0;
};

// Rows at most that are aligned together, and that attend together.
inline constexpr int64_t kSliceAlignRows = 8;
inline constexpr int64_t kSliceAttendRows = 4;

// Caches V' = tril(Wa) V of rows.
struct SliceAlignArgs {
  SliceStep step;
  const SliceRows* rows = nullptr;
  int64_t n_blocks = 0;
  const void* weights = nullptr;  // [l (l + 1) / 2], rows of Wa, packed
  StorageType weight_type = StorageType::kFloat32;
};

// Softmax of scores over sqrt(head_dim).
struct SliceAttendArgs {
  SliceStep step;
  const SliceRows* rows = nullptr;
  int64_t n_blocks = 0;
  int64_t max_rows = 0;   // of a block: 1 or kSliceAttendRows
  int64_t n_visible = 0;  // a row sees itself and n_visible - 1 tokens before it
  // By page: cosines, then sines, [head_dim / 2, 64]; of keys that are rotated.
  const float* rotations = nullptr;
  const float* q = nullptr;  // row i of the step at q + i * ld_q
  int64_t ld_q = 0;
  float* out = nullptr;
  int64_t ld_out = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_SLICES_H_

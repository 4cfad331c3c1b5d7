#ifndef LOWKEY_ENGINE_KERNELS_PACKED_ROWS_H_
#define LOWKEY_ENGINE_KERNELS_PACKED_ROWS_H_

#include <cstdint>

#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/coded_weight.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/packed_weight.h"

namespace lowkey {

// SourceRows holds the rows of one block of a product.
struct SourceRows {
  const float* x = nullptr;
  int64_t ldx = 0, n_in = 0, n_rows = 0;
};

// RowForm says how a part of a weight wants its left-hand side.
struct RowForm {
  enum class Kind { kFloats, kPairs, kCodes } kind = Kind::kFloats;
  int64_t n_in_padded = 0;
  CodeFormat format = CodeFormat::kInt8;  // of codes
  bool in_unit_tiles = false;             // as a matrix unit takes them

  bool operator==(const RowForm&) const = default;
};

RowForm RowFormOf(const PackedPart& part, const KernelTable& kernels, int64_t n_rows);

// PackedRows holds one block of rows as a left-hand side in tiles (LeftLayout::kTiles): numbers,
// numbers rounded to bf16, or codes.
struct PackedRows {
  RowForm form;
  int64_t n_rows = 0;
  const float* numbers = nullptr;  // rounded ones are bf16
  CodedRows codes;
};

// RowTile names the rows [first, first + n) of a block that are one tile.
struct RowTile {
  int64_t first = 0, n = 0;
};
// Returns one of the n_tiles tiles that n_rows rows are cut into.
RowTile TileOf(int64_t n_rows, int64_t n_tiles, int64_t index);

// Packs rows into scratch of the calling thread, which its next call overwrites.
PackedRows PackRows(const SourceRows& rows, const RowForm& form, const KernelTable& kernels,
                    ThreadPool& pool);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_PACKED_ROWS_H_

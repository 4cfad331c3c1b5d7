#include "engine/kernels/linear.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/status_macros.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

// A panel of 256 rows of B is 16 KiB in fp32 and stays in L1 while the rows of A pass over it; 256
// rows of A by 256 are 256 KiB and stay in L2 while the panels pass.
constexpr int64_t kBlockK = 256;
constexpr int64_t kBlockRows = 256;
// Up to this many rows share one pass over the weight in its own order; all their steps fit in L2,
// a tile's steps of one block in L1.
constexpr int64_t kStreamRows = 32;
constexpr int64_t kStreamBlockK = 768;
// With up to this many rows reading the weight takes longer than multiplying with it.
constexpr int64_t kFewRows = 3;
// How far ahead few rows prefetch a weight that is read front to back: 4 KiB cover the memory's
// latency.
constexpr int64_t kAhead = 2048;
// Tasks per thread with many rows: enough to even out a core that is slowed down.
constexpr int64_t kTasksPerThread = 12;

// Returns the bytes of a panel's block in int8: scales, then codes.
int64_t NarrowBlockBytes(int64_t panel) { return panel * (2 + kNarrowBlock); }

int64_t PanelBytes(StorageType type, int64_t n_in_padded, int64_t panel) {
  if (type == StorageType::kInt8) return NarrowBlocks(n_in_padded) * NarrowBlockBytes(panel);
  return n_in_padded * panel * StorageBytes(type);
}

// Packs a row into column c of a panel.
void PackNarrow(absl::Span<const float> row, int64_t panel, int64_t c, std::byte* out) {
  std::vector<uint8_t> codes(row.size());
  std::vector<uint16_t> scales(NarrowBlocks(static_cast<int64_t>(row.size())));
  NarrowRow(row, StorageType::kInt8, codes.data(), scales.data(), 1);
  for (size_t block = 0; block < scales.size(); ++block) {
    std::byte* to = out + static_cast<int64_t>(block) * NarrowBlockBytes(panel);
    reinterpret_cast<uint16_t*>(to)[c] = scales[block];
    to += 2 * panel + c;
    const size_t first = block * kNarrowBlock;
    for (size_t k = first; k < std::min(first + kNarrowBlock, row.size()); ++k, to += panel) {
      *to = std::byte{codes[k]};
    }
  }
}

// Packs n_rows rows of `part`, from first_row, into columns `column` .. of a panel.
void PackPanel(const TensorView& part, int64_t first_row, int64_t n_rows, int64_t panel,
               int64_t column, std::vector<float>& row, StorageType type, std::byte* out) {
  const int64_t n_in = part.shape[1];
  row.resize(n_in);
  for (int64_t j = 0; j < n_rows; ++j) {
    LoadRow(part, first_row + j, row.data());
    const int64_t c = column + j;
    if (type == StorageType::kInt8) {
      PackNarrow(row, panel, c, out);
    } else if (type == StorageType::kFloat32) {
      auto* to = reinterpret_cast<float*>(out);
      for (int64_t k = 0; k < n_in; ++k) to[k * panel + c] = row[k];
    } else {
      auto* to = reinterpret_cast<uint16_t*>(out);
      for (int64_t k = 0; k < n_in; ++k) {
        to[k / 2 * 2 * panel + 2 * c + k % 2] = ToBFloat16(row[k]).bits;
      }
    }
  }
}

// The left-hand side of one block of rows in tiles (LeftLayout::kTiles), rounded to bf16 where the
// kernels want that.
struct PackedRows {
  const std::byte* data = nullptr;
  int64_t n_rows = 0;
};

constexpr int64_t kMaxTileRows = 16;  // the most of any instruction set

// Reads each row in one pass: its lines may be another core's, or not fit in L1. The rows' elements
// of a step lie side by side.
void PackTile(const float* x, int64_t ldx, int64_t rows, const PackedWeight& w, float* out) {
  std::array<const float*, kMaxTileRows> source;
  for (int64_t r = 0; r < rows; ++r) source[r] = x + r * ldx;
  for (int64_t k = 0; k < w.n_in(); ++k) {
    for (int64_t r = 0; r < rows; ++r) *out++ = source[r][k];
  }
  std::fill_n(out, (w.n_in_padded() - w.n_in()) * rows, 0.0f);
}

// The same in bf16, where the rows' pairs of steps lie side by side.
void PackTile(const float* x, int64_t ldx, int64_t rows, const PackedWeight& w, uint16_t* out) {
  constexpr int64_t kSteps = 256;  // of all rows stay in L1 while they are put side by side
  std::array<std::array<uint16_t, kSteps>, kMaxTileRows> rounded;
  for (int64_t k = 0; k < w.n_in(); k += kSteps) {
    const int64_t n = std::min(kSteps, w.n_in() - k);
    for (int64_t r = 0; r < rows; ++r) {
      w.kernels().to_bf16(x + r * ldx + k, rounded[r].data(), n);
      if (n % 2 != 0) rounded[r][n] = 0;
    }
    for (int64_t i = 0; i < n; i += 2) {
      for (int64_t r = 0; r < rows; ++r, out += 2) std::memcpy(out, &rounded[r][i], 4);
    }
  }
}

PackedRows PackRows(const PackedWeight& w, const float* x, int64_t ldx, int64_t n_rows,
                    ThreadPool& pool) {
  if (n_rows == 1 && w.n_in() == w.n_in_padded() && !w.rounds_activations()) {
    return {reinterpret_cast<const std::byte*>(x), 1};  // a row is its own tile
  }
  thread_local std::vector<float> scratch;  // grows to the largest block
  scratch.resize(std::max<size_t>(scratch.size(), n_rows * w.n_in_padded()));
  float* out = scratch.data();
  LK_CHECK(w.kernels().max_tile_rows <= kMaxTileRows);
  const int64_t n_tiles = NumTiles(n_rows, w.kernels().max_tile_rows);
  pool.ParallelFor(n_tiles, [&](int64_t tile, int) {
    int64_t row = 0;
    for (int64_t t = 0; t < tile; ++t) row += NextTileRows(n_rows - row, n_tiles - t);
    const int64_t rows = NextTileRows(n_rows - row, n_tiles - tile);
    const int64_t at = row * w.n_in_padded();
    if (w.rounds_activations()) {
      PackTile(x + row * ldx, ldx, rows, w, reinterpret_cast<uint16_t*>(out) + at);
    } else {
      PackTile(x + row * ldx, ldx, rows, w, out + at);
    }
  });
  return {reinterpret_cast<const std::byte*>(out), n_rows};
}

// A block of a product: steps [k, k + n_k) of n_panels panels from `panel`.
struct WeightBlock {
  int64_t k = 0, n_k = 0;
  int64_t panel = 0, n_panels = 1;
  int64_t next = 0;  // elements from this block to the one that follows it
};

void MultiplyBlock(const PackedWeight& w, const PackedRows& rows, const WeightBlock& block,
                   float* y, int64_t ldy) {
  const KernelTable& kernels = w.kernels();
  const int64_t panel = kernels.panel_columns;
  const int64_t panel_bytes = PanelBytes(w.type(), w.n_in_padded(), panel);
  const std::byte* b = w.data() + block.panel * panel_bytes + PanelBytes(w.type(), block.k, panel);
  GemmArgs product;
  product.a = rows.data;
  product.lda = w.n_in_padded();
  product.b = b;
  product.b_row_stride = panel;
  product.b_panel_stride = panel_bytes / StorageBytes(w.type());
  product.c = y + block.panel * panel;
  product.ldc = ldy;
  product.n_rows = rows.n_rows;
  product.n_cols = block.n_panels * panel;
  product.k = block.n_k;
  product.into = block.k == 0 ? GemmArgs::Into::kOverwrite : GemmArgs::Into::kAccumulate;
  product.a_layout = LeftLayout::kTiles;
  product.k_begin = block.k;
  if (w.type() == StorageType::kInt8) {
    kernels.gemm_int8_blocks(product);
  } else if (w.type() == StorageType::kFloat32) {
    kernels.gemm_f32(product, nullptr);
  } else {
    kernels.gemm_bf16_pairs(product, b + block.next * StorageBytes(w.type()));
  }
}

// Multiplies panels [first, first + count) with at most kFewRows rows. Memory is the limit, so each
// panel is read once, front to back, and several at once keep the chains of FMAs apart.
void MultiplyFewRows(const PackedWeight& w, const PackedRows& rows, int64_t first, int64_t count,
                     float* y, int64_t ldy) {
  MultiplyBlock(w, rows, {0, w.n_in_padded(), first, count, kAhead}, y, ldy);
}

// Multiplies blocks of B that stay in L1 while the rows pass over them.
void MultiplyManyRows(const PackedWeight& w, const PackedRows& rows, int64_t first, int64_t count,
                      float* y, int64_t ldy) {
  const int64_t panel_elements = w.n_in_padded() * w.kernels().panel_columns;
  const auto multiply = [&](int64_t block_k, int64_t k, int64_t panel, int64_t next) {
    const int64_t n_k = std::min(block_k, w.n_in_padded() - k);
    MultiplyBlock(w, rows, {k, n_k, panel, 1, next}, y, ldy);
  };
  if (rows.n_rows <= kStreamRows) {
    for (int64_t p = first; p < first + count; ++p) {
      for (int64_t k = 0; k < w.n_in_padded(); k += kStreamBlockK) {
        multiply(kStreamBlockK, k, p, kStreamBlockK * w.kernels().panel_columns);
      }
    }
    return;
  }
  for (int64_t k = 0; k < w.n_in_padded(); k += kBlockK) {
    for (int64_t p = first; p < first + count; ++p) multiply(kBlockK, k, p, panel_elements);
  }
}

void MultiplyRows(const PackedWeight& w, const PackedRows& rows, float* y, int64_t ldy,
                  ThreadPool& pool) {
  const int64_t n_panels = w.n_out_padded() / w.kernels().panel_columns;
  const bool few_rows = rows.n_rows <= kFewRows;
  // One row's kernel takes four panels at once. A panel that streams past its rows is a task; many
  // rows share the rows of a block among several panels.
  int64_t panels_per_task = few_rows ? 4 : 1;
  if (rows.n_rows > kStreamRows) {
    const int64_t n_parts = kTasksPerThread * pool.n_threads();
    panels_per_task = (n_panels + n_parts - 1) / n_parts;
  }
  const int64_t n_tasks = (n_panels + panels_per_task - 1) / panels_per_task;
  pool.ParallelFor(n_tasks, [&](int64_t task, int) {
    const int64_t first = task * panels_per_task;
    const int64_t count = std::min(panels_per_task, n_panels - first);
    (few_rows ? MultiplyFewRows : MultiplyManyRows)(w, rows, first, count, y, ldy);
  });
}

}  // namespace

absl::StatusOr<PackedWeight> PackedWeight::Pack(absl::Span<const TensorView> parts,
                                                StorageType type, ThreadPool& pool,
                                                const KernelTable& kernels) {
  LK_CHECK(!parts.empty() && type != StorageType::kFloat8);
  const int64_t panel = kernels.panel_columns;
  PackedWeight w;
  w.kernels_ = &kernels;
  w.type_ = type;
  w.n_in_ = parts[0].shape[1];
  for (const TensorView& p : parts) w.n_out_ += p.shape[0];
  const int64_t n_panels = (w.n_out_ + panel - 1) / panel;
  w.n_out_padded_ = n_panels * panel;
  const int64_t panel_bytes = PanelBytes(type, w.n_in_padded(), panel);
  LK_ASSIGN_OR_RETURN(w.data_, Buffer::Allocate(static_cast<size_t>(n_panels * panel_bytes)));

  std::vector<std::vector<float>> scratch(pool.n_threads());
  pool.ParallelFor(n_panels, [&](int64_t p, int thread) {
    std::byte* out = w.data_.data() + p * panel_bytes;
    int64_t part_begin = 0;  // a panel may straddle two stacked matrices
    for (const TensorView& part : parts) {
      const int64_t part_end = part_begin + part.shape[0];
      const int64_t begin = std::max(p * panel, part_begin);
      const int64_t end = std::min((p + 1) * panel, part_end);
      if (begin < end) {
        PackPanel(part, begin - part_begin, end - begin, panel, begin - p * panel, scratch[thread],
                  type, out);
      }
      part_begin = part_end;
    }
  });
  return w;
}

void Linear(const PackedWeight& w, const float* x, int64_t ldx, int64_t n_rows, float* y,
            int64_t ldy, ThreadPool& pool) {
  if (n_rows == 0) return;
  const int64_t n_blocks = (n_rows + kBlockRows - 1) / kBlockRows;
  const int64_t tile = w.kernels().max_tile_rows;
  const int64_t block = ((n_rows + n_blocks - 1) / n_blocks + tile - 1) / tile * tile;
  for (int64_t row = 0; row < n_rows; row += block) {
    const int64_t rows = std::min(block, n_rows - row);
    const PackedRows packed = PackRows(w, x + row * ldx, ldx, rows, pool);
    MultiplyRows(w, packed, y + row * ldy, ldy, pool);
  }
}

}  // namespace lowkey

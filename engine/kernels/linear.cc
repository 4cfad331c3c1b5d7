#include "engine/kernels/linear.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "engine/base/buffer.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/packed_rows.h"

namespace lowkey {
namespace {

// A panel of 256 rows of B is 16 KiB in fp32 and stays in L1 while the rows of A pass over it; 256
// rows of A by 256 are 256 KiB and stay in L2 while the panels pass.
constexpr int64_t kBlockK = 256;
constexpr int64_t kBlockRows = 256;
// A matrix unit takes larger ones, so that a step of 512 rows reads the weight once: 18 KiB of a
// panel in bf16, and 288 KiB of rows.
constexpr int64_t kUnitBlockK = 288;
constexpr int64_t kUnitBlockRows = 512;
constexpr int64_t kUnitPanels = 8;  // whose sums stay in L2 beside those rows: 512 KiB
// Up to this many rows share one pass over the weight in its own order; all their steps fit in L2,
// a tile's steps of one block in L1.
constexpr int64_t kStreamRows = 32;
constexpr int64_t kStreamBlockK = 768;
// With up to as many rows a matrix unit takes so many steps of a coded weight at once: of twice as
// many the codes, the scales and the rows do not fit in L1 together.
constexpr int64_t kUnitStreamSteps = 384;
// With up to this many rows reading the weight takes longer than multiplying with it.
constexpr int64_t kFewRows = 3;
// Up to this many rows multiply codes of 4 bits that stay packed. They take chunks of so few steps,
// or of one block, because the memory would be asked in bursts otherwise.
constexpr int64_t kStoredCodeRows = 4;
constexpr int64_t kStoredCodeSteps = 128;
// How far ahead few rows prefetch a weight that is read front to back: 4 KiB cover the memory's
// latency.
constexpr int64_t kAhead = 2048;
constexpr int64_t kUnitAhead = 32768;  // for a matrix unit, whose loads wait for the memory
// Tasks per thread: enough to even out a core that is slowed down.
constexpr int64_t kTasksPerThread = 12;
constexpr int64_t kUnitTasksPerThread = 4;  // whose panels share the rows that come from L2

// Output says what becomes of a product. Row i is at y + i * ldy.
//  kStore        y = the product
//  kAdd          y += the product
//  kGate         y = silu(a) * b of its two halves a and b
//  kGateToTiles  the same in bf16 and in tiles of rows, as a matrix unit multiplies it
struct Output {
  float* y = nullptr;
  int64_t ldy = 0;
  enum class Kind { kStore, kAdd, kGate, kGateToTiles } kind = Kind::kStore;

  bool gates() const { return kind == Kind::kGate || kind == Kind::kGateToTiles; }
};

// A block of a product: steps [k, k + n_k) of n_panels panels from `panel`.
struct WeightBlock {
  int64_t k = 0, n_k = 0;
  int64_t panel = 0, n_panels = 1;
  int64_t next = 0;  // elements from this block to the one that follows it
};

// Divides a weight's steps evenly into chunks of whole blocks, of at most `most` steps.
int64_t EvenChunk(int64_t n_in, int64_t most, int64_t block) {
  const int64_t n_chunks = DivideUp(n_in, most / block * block);
  return RoundUp(DivideUp(n_in, n_chunks), block);
}

int64_t CodedChunk(const PackedPart& part, const PackedRows& rows) {
  const int64_t block = ShapeOf(*part.form.codes).block;
  int64_t most = kMaxCodedChunk;
  if (rows.n_rows <= kStoredCodeRows) most = kStoredCodeSteps;
  if (rows.form.in_unit_tiles && rows.n_rows <= kStreamRows) most = kUnitStreamSteps;
  return EvenChunk(part.n_in_padded, std::max(most, block), block);
}

void MultiplyCodes(const PackedPart& part, const KernelTable& kernels, const PackedRows& rows,
                   const WeightBlock& block, const Output& out) {
  CodedProductArgs product;
  product.a = rows.codes;
  product.lda = part.n_in_padded;
  product.b = part.data.data() + block.panel * part.panel_bytes;
  product.b_panel_bytes = part.panel_bytes;
  product.c = out.y;
  product.ldc = out.ldy;
  product.n_rows = rows.n_rows;
  product.n_panels = block.n_panels;
  product.k_begin = block.k;
  product.k_end = block.k + block.n_k;
  product.chunk = CodedChunk(part, rows);
  const auto multiply =
      rows.form.in_unit_tiles ? kernels.multiply_codes_in_tiles : kernels.multiply_codes;
  multiply(*part.form.codes, product);
}

void MultiplyBlock(const PackedPart& part, const KernelTable& kernels, const PackedRows& rows,
                   const WeightBlock& block, const Output& out) {
  if (part.form.codes.has_value()) return MultiplyCodes(part, kernels, rows, block, out);
  const int64_t panel = kernels.panel_columns, number_bytes = StorageBytes(part.form.type);
  const std::byte* b =
      part.data.data() + block.panel * part.panel_bytes + block.k * panel * number_bytes;
  GemmArgs product;
  product.a = rows.numbers;
  product.lda = part.n_in_padded;
  product.b = b;
  product.b_row_stride = panel;
  product.b_panel_stride = part.panel_bytes / number_bytes;
  product.c = out.y;
  product.ldc = out.ldy;
  product.n_rows = rows.n_rows;
  product.n_cols = block.n_panels * panel;
  product.k = block.n_k;
  product.into = block.k == 0 ? GemmArgs::Into::kOverwrite : GemmArgs::Into::kAccumulate;
  product.a_layout = LeftLayout::kTiles;
  product.k_begin = block.k;
  if (part.form.type == StorageType::kFloat32) {
    kernels.gemm_f32(product, nullptr);
  } else {
    kernels.gemm_bf16_pairs(product, b + block.next * number_bytes);
  }
}

// PanelSums holds the whole sums of panels [panel, panel + n_panels), panel after panel. Where the
// output joins two halves, the panels of the second half follow all those of the first one.
struct PanelSums {
  static constexpr int64_t kPanel = 32;
  const float* sums = nullptr;
  int64_t panel = 0, n_panels = 0, n_rows = 0;
  int64_t row_steps = 0;  // of a row of tiles

  const float* Rows(int64_t i, int64_t row) const { return sums + (i * n_rows + row) * kPanel; }
};

void WriteTiles(const KernelTable& kernels, const PanelSums& sums, const Output& out) {
  std::array<float, kUnitRows * PanelSums::kPanel> gated;
  const int64_t n_tiles = NumTiles(sums.n_rows, kUnitRows);
  for (int64_t t = 0; t < n_tiles; ++t) {
    const RowTile tile = TileOf(sums.n_rows, n_tiles, t);
    for (int64_t i = 0; i < sums.n_panels; ++i) {
      const int64_t n = tile.n * PanelSums::kPanel;
      kernels.silu_mul(sums.Rows(i, tile.first), sums.Rows(sums.n_panels + i, tile.first),
                       gated.data(), n);
      kernels.to_bf16(
          gated.data(),
          reinterpret_cast<uint16_t*>(out.y) + tile.first * sums.row_steps + (sums.panel + i) * n,
          n);
    }
  }
}

void WriteSums(const KernelTable& kernels, const PanelSums& sums, const Output& out) {
  constexpr int64_t kPanel = PanelSums::kPanel;
  if (out.kind == Output::Kind::kGateToTiles) return WriteTiles(kernels, sums, out);
  float* y = out.y + sums.panel * kPanel;
  for (int64_t row = 0; row < sums.n_rows; ++row, y += out.ldy) {
    for (int64_t i = 0; i < sums.n_panels; ++i) {
      const float* from = sums.Rows(i, row);
      if (out.kind == Output::Kind::kGate) {
        kernels.silu_mul(from, sums.Rows(sums.n_panels + i, row), y + i * kPanel, kPanel);
      } else if (out.kind == Output::Kind::kAdd) {
        kernels.add(from, y + i * kPanel, kPanel);
      } else {
        std::memcpy(y + i * kPanel, from, kPanel * sizeof(float));
      }
    }
  }
}

// Multiplies panels [first, first + count) of a part with many rows by a matrix unit; for a gate
// also the panels half a part further on. Sums lie panel after panel until they are whole: in `out`
// each row of a panel is on a page of its own.
void MultiplyByUnit(const PackedPart& part, const KernelTable& kernels, const PackedRows& rows,
                    int64_t first, int64_t count, const Output& out) {
  constexpr int64_t kPanel = PanelSums::kPanel;
  LK_CHECK(kernels.panel_columns == kPanel);
  const int64_t n_in = part.n_in_padded, n_halves = out.gates() ? 2 : 1;
  const int64_t block_k = part.form.codes.has_value() ? CodedChunk(part, rows)
                                                      : EvenChunk(n_in, kUnitBlockK, kPairSteps);
  const int64_t panel_sums = rows.n_rows * kPanel, group = std::min(count, kUnitPanels / n_halves);
  thread_local AlignedVector<float> scratch;
  scratch.resize(std::max<size_t>(scratch.size(), n_halves * group * panel_sums));
  float* const sums = scratch.data();
  for (int64_t p = first; p < first + count; p += group) {
    const int64_t n_panels = std::min(group, first + count - p);
    const int64_t n = n_halves * n_panels;
    const auto panel_at = [&](int64_t i) {
      return p + i % n_panels + i / n_panels * (part.n_panels / 2);
    };
    for (int64_t k = 0; k < n_in; k += block_k) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t panel = panel_at(i), n_k = std::min(block_k, n_in - k);
        const int64_t next = (panel_at((i + 1) % n) - panel) * n_in + (i + 1 < n ? 0 : n_k);
        MultiplyBlock(part, kernels, rows, {k, n_k, panel, 1, next * kPanel},
                      {sums + i * panel_sums, kPanel});
      }
    }
    WriteSums(kernels, {sums, p, n_panels, rows.n_rows, part.n_panels / n_halves * kPanel}, out);
  }
}

// Multiplies panels [first, first + count) of a part, in blocks of B that stay in L1 while the rows
// pass over them. With at most kFewRows rows memory is the limit, so each panel is read once, front
// to back, and several at once keep the chains of FMAs apart.
void MultiplyPanels(const PackedPart& part, const KernelTable& kernels, const PackedRows& rows,
                    int64_t first, int64_t count, const Output& out) {
  const int64_t n_in = part.n_in_padded, panel_elements = n_in * kernels.panel_columns;
  const bool is_coded = part.form.codes.has_value();
  const bool in_unit_tiles = rows.form.in_unit_tiles;
  const auto at = [&](int64_t panel) -> Output {
    return {out.y + panel * kernels.panel_columns, out.ldy};
  };
  if (rows.n_rows <= kFewRows || ((is_coded || in_unit_tiles) && rows.n_rows <= kStreamRows)) {
    const int64_t ahead = in_unit_tiles ? kUnitAhead : kAhead;
    return MultiplyBlock(part, kernels, rows, {0, n_in, first, count, ahead}, at(first));
  }
  const auto multiply = [&](int64_t block_k, int64_t k, int64_t panel, int64_t next) {
    const int64_t n_k = std::min(block_k, n_in - k);
    MultiplyBlock(part, kernels, rows, {k, n_k, panel, 1, next}, at(panel));
  };
  if (rows.n_rows <= kStreamRows) {
    for (int64_t p = first; p < first + count; ++p) {
      for (int64_t k = 0; k < n_in; k += kStreamBlockK) {
        multiply(kStreamBlockK, k, p, kStreamBlockK * kernels.panel_columns);
      }
    }
    return;
  }
  const int64_t block_k = is_coded ? CodedChunk(part, rows) : kBlockK;
  for (int64_t k = 0; k < n_in; k += block_k) {
    for (int64_t p = first; p < first + count; ++p) multiply(block_k, k, p, panel_elements);
  }
}

// Says whether a matrix unit multiplies these rows by MultiplyByUnit.
bool TakesManyRows(const RowForm& form, int64_t n_rows) {
  return form.in_unit_tiles && n_rows > kStreamRows;
}

void MultiplyRows(const PackedPart& part, const KernelTable& kernels, const PackedRows& rows,
                  const Output& out, ThreadPool& pool) {
  // The last block of a step may have few rows; its sums are joined or added as all others are.
  const bool by_unit = out.kind != Output::Kind::kStore || TakesManyRows(rows.form, rows.n_rows);
  const int64_t n_panels = out.gates() ? part.n_panels / 2 : part.n_panels;
  // One row's kernel takes four panels at once. Where panels stream past their rows, a task takes
  // up to as many; many rows share the rows of a block among several panels.
  const int64_t tasks_per_thread =
      by_unit && rows.n_rows > kStreamRows ? kUnitTasksPerThread : kTasksPerThread;
  int64_t panels_per_task = DivideUp(n_panels, tasks_per_thread * pool.n_threads());
  if (rows.n_rows <= kStreamRows) panels_per_task = std::min<int64_t>(panels_per_task, 4);
  if (rows.n_rows <= kFewRows) panels_per_task = 4;
  const auto multiply = by_unit ? MultiplyByUnit : MultiplyPanels;
  pool.ParallelFor(DivideUp(n_panels, panels_per_task), [&](int64_t task, int) {
    const int64_t first = task * panels_per_task;
    multiply(part, kernels, rows, first, std::min(panels_per_task, n_panels - first), out);
  });
}

// Multiplies a block of rows with all parts. A part's padding reaches into the columns of the part
// after it, which come later.
void MultiplyParts(const PackedWeight& w, const SourceRows& rows, bool is_packed, const Output& out,
                   ThreadPool& pool) {
  std::optional<RowForm> packed_as;
  PackedRows packed;
  for (const PackedPart& part : w.parts()) {
    const RowForm form = RowFormOf(part, w.kernels(), rows.n_rows);
    if (is_packed) {
      packed = {form, rows.n_rows, rows.x, {}};
    } else if (packed_as != form) {
      packed = PackRows(rows, form, w.kernels(), pool);
    }
    packed_as = form;
    MultiplyRows(part, w.kernels(), packed, {out.y + part.first_out, out.ldy, out.kind}, pool);
  }
}

void MultiplyAll(const PackedWeight& w, const LinearRows& x, int64_t n_rows, const Output& out,
                 ThreadPool& pool) {
  const bool has_unit = w.kernels().has_matrix_unit;
  const int64_t n_blocks = DivideUp(n_rows, has_unit ? kUnitBlockRows : kBlockRows);
  const int64_t block =
      RoundUp(DivideUp(n_rows, n_blocks), has_unit ? kUnitRows : w.kernels().max_tile_rows);
  for (int64_t row = 0; row < n_rows; row += block) {
    const SourceRows some{x.x + row * x.ldx, x.ldx, w.n_in(), std::min(block, n_rows - row)};
    MultiplyParts(w, some, x.is_packed, {out.y + row * out.ldy, out.ldy, out.kind}, pool);
  }
}

// Says whether a product with many rows can be joined, or added, before it is written.
bool HasWholeSums(const PackedWeight& w, int64_t n_rows, int64_t column_multiple) {
  const PackedPart& part = w.parts()[0];
  return w.parts().size() == 1 && part.n_out % column_multiple == 0 &&
         TakesManyRows(RowFormOf(part, w.kernels(), n_rows), n_rows);
}

bool TakesTiles(const PackedWeight& w, int64_t n_rows) {
  return w.parts().size() == 1 && RowFormOf(w.parts()[0], w.kernels(), n_rows).in_unit_tiles &&
         w.parts()[0].form.type == StorageType::kBFloat16;
}

}  // namespace

void Linear(const PackedWeight& w, const LinearRows& x, int64_t n_rows, float* y, int64_t ldy,
            ThreadPool& pool) {
  if (n_rows == 0) return;
  LK_CHECK(ldy >= w.n_out_padded());  // a row's padding must not lie in the next row
  MultiplyAll(w, x, n_rows, {y, ldy}, pool);
}

void AddLinear(const PackedWeight& w, absl::Span<const float> bias, const LinearRows& x,
               int64_t n_rows, float* y, int64_t ldy, float* scratch, ThreadPool& pool) {
  if (n_rows == 0) return;
  if (bias.empty() && HasWholeSums(w, n_rows, w.kernels().panel_columns)) {
    return MultiplyAll(w, x, n_rows, {y, ldy, Output::Kind::kAdd}, pool);
  }
  const int64_t ld = RowStride(w.n_out_padded());
  Linear(w, x, n_rows, scratch, ld, pool);
  pool.ParallelFor(n_rows, [&](int64_t i, int) {
    float* product = scratch + i * ld;
    if (!bias.empty()) w.kernels().add(bias.data(), product, w.n_out());
    w.kernels().add(product, y + i * ldy, w.n_out());
  });
}

LinearRows GatedLinear(const PackedWeight& w, absl::Span<const float> bias, const LinearRows& x,
                       int64_t n_rows, const PackedWeight* next, float* y, int64_t ldy,
                       ThreadPool& pool) {
  const bool joins = bias.empty() && HasWholeSums(w, n_rows, 2 * w.kernels().panel_columns);
  if (joins) {
    const bool packs = next != nullptr && TakesTiles(*next, n_rows);
    MultiplyAll(w, x, n_rows, {y, ldy, packs ? Output::Kind::kGateToTiles : Output::Kind::kGate},
                pool);
    return {y, ldy, packs};
  }
  Linear(w, x, n_rows, y, ldy, pool);
  const int64_t n = w.n_out() / 2;
  pool.ParallelFor(n_rows, [&](int64_t i, int) {
    float* row = y + i * ldy;
    if (!bias.empty()) w.kernels().add(bias.data(), row, 2 * n);
    w.kernels().silu_mul(row, row + n, row, n);
  });
  return {y, ldy};
}

}  // namespace lowkey

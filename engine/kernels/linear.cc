#include "engine/kernels/linear.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "engine/base/aligned_vector.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// A panel of 256 rows of B is 16 KiB in fp32 and stays in L1 while the rows of A pass over it; 256
// rows of A by 256 are 256 KiB and stay in L2 while the panels pass.
constexpr int64_t kBlockK = 256;
constexpr int64_t kBlockRows = 256;
// A matrix unit takes larger ones, so that a step of 512 rows reads the weight once: 20 KiB of a
// panel in bf16, and 320 KiB of rows.
constexpr int64_t kUnitBlockK = 320;
constexpr int64_t kUnitBlockRows = 512;
constexpr int64_t kUnitPanels = 8;  // whose sums stay in L2 beside those rows: 512 KiB
// Up to this many rows share one pass over the weight in its own order; all their steps fit in L2,
// a tile's steps of one block in L1.
constexpr int64_t kStreamRows = 32;
constexpr int64_t kStreamBlockK = 768;
// With up to this many rows reading the weight takes longer than multiplying with it.
constexpr int64_t kFewRows = 3;
constexpr int64_t kFewRowsChunk = 256;  // steps of codes that are expanded at once for these
// How far ahead few rows prefetch a weight that is read front to back: 4 KiB cover the memory's
// latency.
constexpr int64_t kAhead = 2048;
constexpr int64_t kUnitAhead = 32768;  // for a matrix unit, whose loads wait for the memory
// Tasks per thread with many rows: enough to even out a core that is slowed down.
constexpr int64_t kTasksPerThread = 12;
constexpr int64_t kMaxTileRows = 16;      // the most of any instruction set
constexpr int64_t kLineFloats = 16;       // of a cache line
constexpr int64_t kFewestUnitSteps = 32;  // of a group of codes that a matrix unit multiplies

// The rows of one block of a product.
struct SourceRows {
  const float* x = nullptr;
  int64_t ldx = 0, n_in = 0, n_rows = 0;
};

// How a part of a weight wants its left-hand side.
struct RowForm {
  enum class Kind { kFloats, kPairs, kCodes } kind = Kind::kFloats;
  int64_t n_in_padded = 0;
  CodeFormat format = CodeFormat::kInt8;  // of codes
  bool in_unit_tiles = false;             // as a matrix unit takes them

  bool operator==(const RowForm&) const = default;
};

RowForm RowFormOf(const PackedPart& part, const KernelTable& kernels, int64_t n_rows) {
  RowForm form{.n_in_padded = part.n_in_padded};
  if (part.form.codes.has_value()) {
    form.kind = RowForm::Kind::kCodes;
    form.format = *part.form.codes;
    form.in_unit_tiles = kernels.has_matrix_unit && n_rows >= kFewestCodedUnitRows &&
                         ShapeOf(form.format).group >= kFewestUnitSteps;
  } else if (part.form.type == StorageType::kBFloat16 && kernels.rounds_activations) {
    form.kind = RowForm::Kind::kPairs;
    form.in_unit_tiles = kernels.has_matrix_unit;
  }
  return form;
}

// The left-hand side of one block of rows in tiles (LeftLayout::kTiles): numbers, numbers rounded
// to bf16, or codes.
struct PackedRows {
  RowForm form;
  int64_t n_rows = 0;
  const float* numbers = nullptr;  // rounded ones are bf16
  CodedRows codes;
};

// A tile: rows [first, first + n) of a block.
struct RowTile {
  int64_t first = 0, n = 0;
};

// Reads each row in one pass: its lines may be another core's, or not fit in L1. The rows' elements
// of a step lie side by side.
void PackFloats(const SourceRows& rows, const RowTile& tile, int64_t n_in_padded, float* out) {
  std::array<const float*, kMaxTileRows> source;
  for (int64_t r = 0; r < tile.n; ++r) source[r] = rows.x + (tile.first + r) * rows.ldx;
  for (int64_t k = 0; k < rows.n_in; ++k) {
    for (int64_t r = 0; r < tile.n; ++r) *out++ = source[r][k];
  }
  std::fill_n(out, (n_in_padded - rows.n_in) * tile.n, 0.0f);
}

// Lays the tile's rows side by side, kRun bytes of each in turn: those of row r are at from + r *
// ld.
template <int64_t kRun>
void Interleave(const std::byte* from, int64_t ld, int64_t n_bytes, int64_t n_rows,
                std::byte* out) {
  for (int64_t at = 0; at < n_bytes; at += kRun) {
    for (int64_t r = 0; r < n_rows; ++r, out += kRun) std::memcpy(out, from + r * ld + at, kRun);
  }
}

constexpr int64_t kRowChunk = 768;  // steps of all rows that stay in L1 while they are interleaved

void PackPairs(const SourceRows& rows, const RowTile& tile, const KernelTable& kernels,
               std::byte* out) {
  const auto interleave = kernels.has_matrix_unit ? Interleave<2 * kPairSteps> : Interleave<4>;
  std::array<uint16_t, kRowChunk * kMaxTileRows> rounded;
  for (int64_t k = 0; k < rows.n_in; k += kRowChunk) {
    const int64_t n = std::min(kRowChunk, rows.n_in - k), n_padded = RoundUp(n, kPairSteps);
    for (int64_t r = 0; r < tile.n; ++r) {
      uint16_t* row = &rounded[r * kRowChunk];
      kernels.to_bf16(rows.x + (tile.first + r) * rows.ldx + k, row, n);
      std::fill(row + n, row + n_padded, uint16_t{0});
    }
    interleave(reinterpret_cast<const std::byte*>(rounded.data()), 2 * kRowChunk, 2 * n_padded,
               tile.n, out + 2 * k * tile.n);
  }
}

// Lays a tile's codes of 16 bits by groups: their upper halves, then their lower ones.
void SplitCodes(const std::byte* from, int64_t ld, int64_t n_codes, int64_t group, int64_t n_rows,
                std::byte* out) {
  for (int64_t k = 0; k < n_codes; k += group, out += 2 * n_rows * group) {
    for (int64_t r = 0; r < n_rows; ++r) {
      std::byte *high = out + r * group, *low = high + n_rows * group;
      for (int64_t i = 0; i < group; ++i) {
        uint16_t code;
        std::memcpy(&code, from + r * ld + 2 * (k + i), sizeof(code));
        high[i] = static_cast<std::byte>(code >> 8);
        low[i] = static_cast<std::byte>(code);
      }
    }
  }
}

void LayCodes(const RowForm& form, const std::byte* from, int64_t ld, int64_t n_codes,
              int64_t n_rows, std::byte* out) {
  const CodeShape& shape = ShapeOf(form.format);
  if (!form.in_unit_tiles) {
    return Interleave<4>(from, ld, n_codes * shape.row_bits / 8, n_rows, out);
  }
  if (shape.row_bits == 16) return SplitCodes(from, ld, n_codes, shape.group, n_rows, out);
  Interleave<kFewestUnitSteps>(from, ld, n_codes, n_rows, out);
}

void PackCodes(const SourceRows& rows, const RowTile& tile, const RowForm& form,
               const KernelTable& kernels, const CodedRows& out) {
  constexpr int64_t kMaxGroups = kRowChunk / 16;
  std::array<std::byte, 2 * kRowChunk * kMaxTileRows> codes;
  std::array<float, kMaxGroups> scales, sums;
  std::array<int32_t, kMaxGroups> starts;
  const CodeShape& shape = ShapeOf(form.format);
  const int64_t code_bytes = shape.row_bits / 8, ld = kRowChunk * code_bytes;
  for (int64_t k = 0; k < form.n_in_padded; k += kRowChunk) {
    const int64_t n = std::min(kRowChunk, rows.n_in - k);
    const int64_t n_padded = std::min(kRowChunk, form.n_in_padded - k);
    const int64_t first_group = k / shape.group;
    for (int64_t r = 0; r < tile.n; ++r) {
      std::byte* row = &codes[r * ld];
      std::fill(row + n * code_bytes, row + n_padded * code_bytes, std::byte{0});
      kernels.code_row(form.format, rows.x + (tile.first + r) * rows.ldx + k, n,
                       {row, scales.data(), sums.data(), starts.data()});
      for (int64_t g = 0; g < n_padded / shape.group; ++g) {
        const int64_t at = (first_group + g) * tile.n + r;
        out.scales[at] = scales[g];
        out.sums[at] = sums[g];
        out.starts[at] = starts[g];
      }
    }
    LayCodes(form, codes.data(), ld, n_padded, tile.n, out.codes + k * code_bytes * tile.n);
  }
}

PackedRows PackRows(const SourceRows& rows, const RowForm& form, const KernelTable& kernels,
                    ThreadPool& pool) {
  if (rows.n_rows == 1 && form.kind == RowForm::Kind::kFloats && rows.n_in == form.n_in_padded) {
    return {form, 1, rows.x, {}};  // a row is its own tile
  }
  const CodeShape& shape = ShapeOf(form.format);
  thread_local AlignedVector<float> scratch;         // grows to the largest block
  const int64_t n = rows.n_rows * form.n_in_padded;  // floats, which are enough for each kind
  const int64_t n_groups = form.kind == RowForm::Kind::kCodes ? n / shape.group : 0;
  scratch.resize(std::max<size_t>(scratch.size(), n + 3 * n_groups));
  float* const out = scratch.data();
  auto* const bytes = reinterpret_cast<std::byte*>(out);
  const CodedRows codes = {bytes, out + n, out + n + n_groups,
                           reinterpret_cast<int32_t*>(out + n + 2 * n_groups)};
  const int64_t max_tile_rows = form.in_unit_tiles ? kUnitRows : kernels.max_tile_rows;
  LK_CHECK(max_tile_rows <= kMaxTileRows);
  const int64_t n_tiles = NumTiles(rows.n_rows, max_tile_rows);
  pool.ParallelFor(n_tiles, [&](int64_t index, int) {
    RowTile tile;
    for (int64_t t = 0; t <= index; ++t) {
      tile.first += tile.n;
      tile.n = NextTileRows(rows.n_rows - tile.first, n_tiles - t);
    }
    const int64_t at = tile.first * form.n_in_padded;
    if (form.kind == RowForm::Kind::kFloats) {
      PackFloats(rows, tile, form.n_in_padded, out + at);
    } else if (form.kind == RowForm::Kind::kPairs) {
      PackPairs(rows, tile, kernels, bytes + 2 * at);
    } else {
      const int64_t group = at / shape.group;
      PackCodes(rows, tile, form, kernels,
                {bytes + at * shape.row_bits / 8, codes.scales + group, codes.sums + group,
                 codes.starts + group});
    }
  });
  return {form, rows.n_rows, out, codes};
}

// The results of a product, from the first column that is computed on: row i is at y + i * ldy.
struct Output {
  float* y = nullptr;
  int64_t ldy = 0;
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

// A few rows take small chunks: codes that stay packed are asked for a whole chunk at once.
int64_t CodedChunk(const PackedPart& part, int64_t n_rows) {
  return EvenChunk(part.n_in_padded, n_rows <= kFewRows ? kFewRowsChunk : kMaxCodedChunk,
                   ShapeOf(*part.form.codes).block);
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
  product.chunk = CodedChunk(part, rows.n_rows);
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

// Multiplies panels [first, first + count) of a part with many rows by a matrix unit; if `gates`,
// also the panels half a part further on, and writes silu(x) * y of results x and y of both. Sums
// lie panel after panel until they are whole: in `out` each row of a panel is on a page of its own.
void MultiplyByUnit(const PackedPart& part, const KernelTable& kernels, const PackedRows& rows,
                    int64_t first, int64_t count, const Output& out, bool gates) {
  constexpr int64_t kPanel = 2 * kLineFloats;
  LK_CHECK(kernels.panel_columns == kPanel);
  const int64_t n_in = part.n_in_padded, n_halves = gates ? 2 : 1;
  const int64_t block_k = part.form.codes.has_value() ? CodedChunk(part, rows.n_rows)
                                                      : EvenChunk(n_in, kUnitBlockK, kPairSteps);
  const int64_t panel_sums = rows.n_rows * kPanel, group = std::min(count, kUnitPanels / n_halves);
  thread_local AlignedVector<float> scratch;
  scratch.resize(std::max<size_t>(scratch.size(), n_halves * group * panel_sums));
  float* const sums = scratch.data();
  for (int64_t p = first; p < first + count; p += group) {
    const int64_t n_panels = std::min(group, first + count - p);
    for (int64_t k = 0; k < n_in; k += block_k) {
      for (int64_t i = 0; i < n_halves * n_panels; ++i) {
        const int64_t panel = p + i % n_panels + i / n_panels * (part.n_panels / 2);
        MultiplyBlock(part, kernels, rows,
                      {k, std::min(block_k, n_in - k), panel, 1, n_in * kPanel},
                      {sums + i * panel_sums, kPanel});
      }
    }
    float* y = out.y + (p - first) * kPanel;
    for (int64_t row = 0; row < rows.n_rows; ++row, y += out.ldy) {
      for (int64_t i = 0; i < n_panels; ++i) {
        const float* from = sums + i * panel_sums + row * kPanel;
        if (gates) {
          kernels.silu_mul(from, from + n_panels * panel_sums, y + i * kPanel, kPanel);
        } else {
          std::memcpy(y + i * kPanel, from, kPanel * sizeof(float));
        }
      }
    }
  }
}

// Multiplies panels [first, first + count) of a part, in blocks of B that stay in L1 while the rows
// pass over them. With at most kFewRows rows memory is the limit, so each panel is read once, front
// to back, and several at once keep the chains of FMAs apart. `out` begins with panel `first`.
void MultiplyPanels(const PackedPart& part, const KernelTable& kernels, const PackedRows& rows,
                    int64_t first, int64_t count, const Output& out) {
  const int64_t n_in = part.n_in_padded, panel_elements = n_in * kernels.panel_columns;
  const bool is_coded = part.form.codes.has_value();
  const bool in_unit_tiles = rows.form.in_unit_tiles;
  if (rows.n_rows <= kFewRows || ((is_coded || in_unit_tiles) && rows.n_rows <= kStreamRows)) {
    const int64_t ahead = in_unit_tiles ? kUnitAhead : kAhead;
    return MultiplyBlock(part, kernels, rows, {0, n_in, first, count, ahead}, out);
  }
  if (in_unit_tiles) return MultiplyByUnit(part, kernels, rows, first, count, out, false);
  const auto multiply = [&](int64_t block_k, int64_t k, int64_t panel, int64_t next) {
    const int64_t n_k = std::min(block_k, n_in - k);
    MultiplyBlock(part, kernels, rows, {k, n_k, panel, 1, next},
                  {out.y + (panel - first) * kernels.panel_columns, out.ldy});
  };
  if (rows.n_rows <= kStreamRows) {
    for (int64_t p = first; p < first + count; ++p) {
      for (int64_t k = 0; k < n_in; k += kStreamBlockK) {
        multiply(kStreamBlockK, k, p, kStreamBlockK * kernels.panel_columns);
      }
    }
    return;
  }
  const int64_t block_k = is_coded ? CodedChunk(part, rows.n_rows) : kBlockK;
  for (int64_t k = 0; k < n_in; k += block_k) {
    for (int64_t p = first; p < first + count; ++p) multiply(block_k, k, p, panel_elements);
  }
}

void MultiplyRows(const PackedPart& part, const KernelTable& kernels, const PackedRows& rows,
                  const Output& out, bool gates, ThreadPool& pool) {
  const int64_t n_panels = gates ? part.n_panels / 2 : part.n_panels;
  // One row's kernel takes four panels at once. A panel that streams past its rows is a task; many
  // rows share the rows of a block among several panels.
  int64_t panels_per_task = rows.n_rows <= kFewRows ? 4 : 1;
  if (rows.n_rows > kStreamRows) {
    const int64_t n_tasks = kTasksPerThread * pool.n_threads();
    panels_per_task = DivideUp(n_panels, n_tasks);
  }
  const int64_t n_tasks = DivideUp(n_panels, panels_per_task);
  pool.ParallelFor(n_tasks, [&](int64_t task, int) {
    const int64_t first = task * panels_per_task;
    const int64_t count = std::min(panels_per_task, n_panels - first);
    const Output at = {out.y + first * kernels.panel_columns, out.ldy};
    if (gates) {
      MultiplyByUnit(part, kernels, rows, first, count, at, true);
    } else {
      MultiplyPanels(part, kernels, rows, first, count, at);
    }
  });
}

// Multiplies a block of rows with all parts. A part's padding reaches into the columns of the part
// after it, which come later.
void MultiplyParts(const PackedWeight& w, const SourceRows& rows, const Output& out, bool gates,
                   ThreadPool& pool) {
  std::optional<RowForm> packed_as;
  PackedRows packed;
  for (const PackedPart& part : w.parts()) {
    const RowForm form = RowFormOf(part, w.kernels(), rows.n_rows);
    if (packed_as != form) packed = PackRows(rows, form, w.kernels(), pool);
    packed_as = form;
    MultiplyRows(part, w.kernels(), packed, {out.y + part.first_out, out.ldy}, gates, pool);
  }
}

void MultiplyAll(const PackedWeight& w, const SourceRows& rows, const Output& out, bool gates,
                 ThreadPool& pool) {
  LK_CHECK(out.ldy >= w.n_out_padded());  // a row's padding must not lie in the next row
  const bool has_unit = w.kernels().has_matrix_unit;
  const int64_t n_blocks = DivideUp(rows.n_rows, has_unit ? kUnitBlockRows : kBlockRows);
  const int64_t block =
      RoundUp(DivideUp(rows.n_rows, n_blocks), has_unit ? kUnitRows : w.kernels().max_tile_rows);
  for (int64_t row = 0; row < rows.n_rows; row += block) {
    const SourceRows some{rows.x + row * rows.ldx, rows.ldx, rows.n_in,
                          std::min(block, rows.n_rows - row)};
    MultiplyParts(w, some, {out.y + row * out.ldy, out.ldy}, gates, pool);
  }
}

// Says whether a product of gates and numbers can join both before it writes them.
bool JoinsHalves(const PackedWeight& w, int64_t n_rows) {
  const PackedPart& part = w.parts()[0];
  return w.parts().size() == 1 && part.n_out % (2 * w.kernels().panel_columns) == 0 &&
         n_rows > kStreamRows && RowFormOf(part, w.kernels(), n_rows).in_unit_tiles;
}

}  // namespace

void Linear(const PackedWeight& w, const float* x, int64_t ldx, int64_t n_rows, float* y,
            int64_t ldy, ThreadPool& pool) {
  if (n_rows == 0) return;
  MultiplyAll(w, {x, ldx, w.n_in(), n_rows}, {y, ldy}, false, pool);
}

void GatedLinear(const PackedWeight& w, absl::Span<const float> bias, const float* x, int64_t ldx,
                 int64_t n_rows, float* y, int64_t ldy, ThreadPool& pool) {
  if (n_rows == 0) return;
  const bool joins = bias.empty() && JoinsHalves(w, n_rows);
  MultiplyAll(w, {x, ldx, w.n_in(), n_rows}, {y, ldy}, joins, pool);
  if (joins) return;
  const int64_t n = w.n_out() / 2;
  pool.ParallelFor(n_rows, [&](int64_t i, int) {
    float* row = y + i * ldy;
    if (!bias.empty()) w.kernels().add(bias.data(), row, 2 * n);
    w.kernels().silu_mul(row, row + n, row, n);
  });
}

}  // namespace lowkey

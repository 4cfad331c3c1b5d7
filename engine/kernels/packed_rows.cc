#include "engine/kernels/packed_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/buffer.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int64_t kMaxTileRows = 16;      // the most of any instruction set
constexpr int64_t kFewestUnitSteps = 32;  // of a group of codes that a matrix unit multiplies

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

// Steps of a tile's rows that are packed at once, in L1.
constexpr int64_t kRowChunk = 256;
constexpr int64_t kFewestSharedRows = 8;  // of a block whose tiles' chunks several threads pack

// Packs a tile's chunk of steps from k on.
void PackPairs(const SourceRows& rows, const RowTile& tile, int64_t k, const KernelTable& kernels,
               std::byte* out) {
  const auto interleave = kernels.has_matrix_unit ? Interleave<2 * kPairSteps> : Interleave<4>;
  std::array<uint16_t, kRowChunk * kMaxTileRows> rounded;
  const int64_t n = std::min(kRowChunk, rows.n_in - k), n_padded = RoundUp(n, kPairSteps);
  for (int64_t r = 0; r < tile.n; ++r) {
    uint16_t* row = &rounded[r * kRowChunk];
    kernels.to_bf16(rows.x + (tile.first + r) * rows.ldx + k, row, n);
    std::fill(row + n, row + n_padded, uint16_t{0});
  }
  interleave(reinterpret_cast<const std::byte*>(rounded.data()), 2 * kRowChunk, 2 * n_padded,
             tile.n, out + 2 * k * tile.n);
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

// Packs a tile's chunk of steps from k on.
void PackCodes(const SourceRows& rows, const RowTile& tile, int64_t k, const RowForm& form,
               const KernelTable& kernels, const CodedRows& out) {
  constexpr int64_t kMaxGroups = kRowChunk / 16;
  std::array<std::byte, 2 * kRowChunk * kMaxTileRows> codes;
  std::array<float, kMaxGroups> scales, sums;
  std::array<int32_t, kMaxGroups> starts;
  const CodeShape& shape = ShapeOf(form.format);
  const int64_t code_bytes = shape.row_bits / 8, ld = kRowChunk * code_bytes;
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

}  // namespace

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

RowTile TileOf(int64_t n_rows, int64_t n_tiles, int64_t index) {
  RowTile tile;
  for (int64_t t = 0; t <= index; ++t) {
    tile.first += tile.n;
    tile.n = NextTileRows(n_rows - tile.first, n_tiles - t);
  }
  return tile;
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
  const int64_t n_chunks = form.kind == RowForm::Kind::kFloats ? 1 : DivideUp(rows.n_in, kRowChunk);
  const int64_t n_shares = rows.n_rows < kFewestSharedRows ? 1 : n_chunks;  // of a tile
  pool.ParallelFor(n_tiles * n_shares, [&](int64_t index, int) {
    const RowTile tile = TileOf(rows.n_rows, n_tiles, index / n_shares);
    const int64_t at = tile.first * form.n_in_padded, group = at / shape.group;
    for (int64_t chunk = index % n_shares; chunk < n_chunks; chunk += n_shares) {
      const int64_t k = chunk * kRowChunk;
      if (form.kind == RowForm::Kind::kFloats) {
        PackFloats(rows, tile, form.n_in_padded, out + at);
      } else if (form.kind == RowForm::Kind::kPairs) {
        PackPairs(rows, tile, k, kernels, bytes + 2 * at);
      } else {
        PackCodes(rows, tile, k, form, kernels,
                  {bytes + at * shape.row_bits / 8, codes.scales + group, codes.sums + group,
                   codes.starts + group});
      }
    }
  });
  return {form, rows.n_rows, out, codes};
}

}  // namespace lowkey

#include "engine/kernels/coded_weight.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/codes/quantized.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/narrow_weight.h"

namespace lowkey {
namespace {

constexpr std::pair<DType, CodeFormat> kFormats[] = {
    {DType::kQ4_0, CodeFormat::kQ4_0}, {DType::kQ4_1, CodeFormat::kQ4_1},
    {DType::kQ5_0, CodeFormat::kQ5_0}, {DType::kQ5_1, CodeFormat::kQ5_1},
    {DType::kQ8_0, CodeFormat::kQ8_0}, {DType::kQ4_K, CodeFormat::kQ4_K},
    {DType::kQ5_K, CodeFormat::kQ5_K}, {DType::kQ6_K, CodeFormat::kQ6_K},
};

// Packs the outputs of a panel, one after the other.
class PanelPacker {
 public:
  // `places` holds the panel's codes in bytes, and begins as zeros.
  PanelPacker(CodeFormat format, int64_t panel, std::byte* out, std::vector<uint8_t>& places)
      : shape_(ShapeOf(format)), panel_(panel), out_(out), places_(places) {}

  void AddBlock(int64_t column, int64_t index, const CodedBlock& block) {
    std::byte* at = out_ + index * shape_.bytes() * panel_;
    std::memcpy(at + 2 * column, &block.scale, sizeof(block.scale));
    at += 2 * panel_;
    if (shape_.stores_add) {
      std::memcpy(at + 2 * column, &block.add, sizeof(block.add));
      at += 2 * panel_;
    }
    if (shape_.stores_zero) {
      at[column] = std::byte{block.add_factors[0]};
      at += panel_;
    }
    const int64_t n_groups = shape_.block / shape_.group, side = shape_.side();
    for (int part = 0; part < shape_.sub_bytes; ++part) {
      const auto& factors = part == 0 ? block.scale_factors : block.add_factors;
      for (int64_t g = 0; g < n_groups; ++g, at += panel_) at[column] = std::byte{factors[g]};
    }
    uint8_t* const to = places_.data() + (index * shape_.block * panel_ + column * side);
    for (int64_t k = 0; k < shape_.block; k += side) {
      std::memcpy(to + k * panel_, block.codes.data() + k, static_cast<size_t>(side));
    }
  }

  // Writes the codes, once all blocks of all outputs are there.
  void WriteCodes() const {
    const int64_t unit_places = kCodeUnit * panel_;
    const auto n_places = static_cast<int64_t>(places_.size());
    for (int64_t first = 0; first < n_places; first += unit_places) {
      const int64_t k = first / panel_, block = k / shape_.block;
      std::byte* const to = out_ + panel_ * (block * shape_.bytes() + shape_.header_bytes() +
                                             k % shape_.block * shape_.bits / 8);
      PackUnit(places_.data() + first, unit_places, reinterpret_cast<uint8_t*>(to));
    }
  }

 private:
  void PackUnit(const uint8_t* places, int64_t n_places, uint8_t* out) const {
    if (shape_.bits == 8) {
      std::memcpy(out, places, static_cast<size_t>(n_places));
      return;
    }
    const int64_t half = n_places / 2;
    for (int64_t j = 0; j < half; ++j) {
      out[j] = static_cast<uint8_t>((places[j] & 15) | places[j + half] << 4);
    }
    const int high_bits = shape_.bits - 4;
    const int64_t plane = n_places * high_bits / 8;
    for (int64_t first = 0; high_bits > 0 && first < n_places; first += plane) {
      const auto shift = static_cast<int>(first / plane) * high_bits;
      for (int64_t j = 0; j < plane; ++j) out[half + j] |= (places[first + j] >> 4) << shift;
    }
  }

  const CodeShape& shape_;
  const int64_t panel_;
  std::byte* const out_;
  std::vector<uint8_t>& places_;
};

void AddInt8(const MatrixRow& row, int64_t column, PanelPacker& packer) {
  const int64_t n_in = row.matrix->shape[1];
  thread_local std::vector<float> numbers;
  numbers.resize(n_in);
  LoadRow(*row.matrix, row.row, numbers.data());
  CodedBlock block;
  for (int64_t i = 0; i * kNarrowBlock < n_in; ++i) {
    const int64_t n = std::min(kNarrowBlock, n_in - i * kNarrowBlock);
    block.codes.fill(0);
    NarrowRow({numbers.data() + i * kNarrowBlock, static_cast<size_t>(n)}, StorageType::kInt8,
              block.codes.data(), &block.scale, 1);
    packer.AddBlock(column, i, block);
  }
}

void AddStored(const MatrixRow& row, int64_t column, PanelPacker& packer) {
  const TensorView& matrix = *row.matrix;
  const int64_t n_blocks = matrix.shape[1] / DTypeBlockSize(matrix.dtype);
  const size_t block_bytes = DTypeBytes(matrix.dtype);
  const std::byte* at = matrix.data + StoredRow(matrix, row.row) * n_blocks * block_bytes;
  CodedBlock block;
  for (int64_t i = 0; i < n_blocks; ++i, at += block_bytes) {
    ReadCodes(matrix.dtype, at, block);
    packer.AddBlock(column, i, block);
  }
}

// Says how grouped codes are kept: those of 8 bits as Q8_0's, which have signs and no zero point.
CodeFormat FormatOfBits(const GroupedCodes& matrix) {
  return matrix.dtype == DType::kGptq8 ? CodeFormat::kQ8_0 : CodeFormat::kInt4;
}

// A group of the file is several blocks with the same scale.
void AddGrouped(const MatrixRow& row, int64_t column, PanelPacker& packer) {
  const GroupedCodes& matrix = *row.matrix->grouped;
  const CodeFormat format = FormatOfBits(matrix);
  const int64_t n_block = ShapeOf(format).block;
  thread_local std::vector<uint8_t> codes;
  thread_local std::vector<float> scales;
  thread_local std::vector<int32_t> zeros;
  codes.resize(matrix.n_in);
  scales.resize(matrix.n_groups());
  zeros.resize(matrix.n_groups());
  LoadCodes(matrix, row.row, codes.data());
  LoadGroups(matrix, row.row, scales.data(), zeros.data());
  const auto shift =
      static_cast<uint8_t>(format == CodeFormat::kQ8_0 ? GroupedCodes::kMiddleOf8Bits : 0);
  CodedBlock block;
  for (int64_t i = 0; i * n_block < matrix.n_in; ++i) {
    const int64_t group = i * n_block / matrix.group_size;
    block.scale = FloatToHalf(scales[group]);
    block.add_factors[0] = static_cast<uint8_t>(zeros[group]);
    std::transform(codes.data() + i * n_block, codes.data() + (i + 1) * n_block,
                   block.codes.begin(),
                   [&](uint8_t code) { return static_cast<uint8_t>(code - shift); });
    packer.AddBlock(column, i, block);
  }
}

std::optional<CodeFormat> FormatOf(const GroupedCodes& matrix) {
  const CodeFormat format = FormatOfBits(matrix);
  const int64_t n_block = ShapeOf(format).block;
  const bool fits = matrix.groups.empty() && matrix.scale_dtype == DType::kF16 &&
                    matrix.n_in % n_block == 0 && matrix.group_size % n_block == 0;
  if (!fits || (format == CodeFormat::kQ8_0 && !matrix.is_symmetric)) return std::nullopt;
  return format;
}

}  // namespace

std::optional<CodeFormat> CodeFormatOf(const TensorView& matrix) {
  if (matrix.grouped != nullptr) return FormatOf(*matrix.grouped);
  for (const auto& [type, format] : kFormats) {
    if (type == matrix.dtype) return format;
  }
  return std::nullopt;
}

std::string_view CodeFormatName(CodeFormat format) {
  for (const auto& [type, other] : kFormats) {
    if (other == format) return DTypeName(type);
  }
  return format == CodeFormat::kInt4 ? "int4" : "int8";
}

void PackCodes(absl::Span<const MatrixRow> rows, CodeFormat format, int64_t panel, std::byte* out) {
  const int64_t n_in = rows[0].matrix->shape[1], block = ShapeOf(format).block;
  thread_local std::vector<uint8_t> places;
  places.assign((n_in + block - 1) / block * block * panel, 0);
  PanelPacker packer(format, panel, out, places);
  for (size_t column = 0; column < rows.size(); ++column) {
    const MatrixRow& row = rows[column];
    if (format == CodeFormat::kInt8) {
      AddInt8(row, static_cast<int64_t>(column), packer);
    } else {
      LK_CHECK(CodeFormatOf(*row.matrix) == format);
      (row.matrix->grouped != nullptr ? AddGrouped : AddStored)(row, static_cast<int64_t>(column),
                                                                packer);
    }
  }
  packer.WriteCodes();
}

}  // namespace lowkey

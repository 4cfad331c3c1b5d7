#include "engine/kernels/coded_weight.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/base/quantized.h"
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

// Writes one output's blocks to their places in a panel.
class Packer {
 public:
  Packer(CodeFormat format, int64_t panel, int64_t column, std::byte* out)
      : shape_(ShapeOf(format)), panel_(panel), column_(column), out_(out) {}

  void Add(const CodedBlock& block) {
    std::byte* at = out_;
    at = Put16(block.scale, at);
    if (shape_.stores_add) at = Put16(block.add, at);
    const int64_t n_groups = shape_.block / shape_.group;
    for (int part = 0; part < shape_.sub_bytes; ++part) {
      const auto& factors = part == 0 ? block.scale_factors : block.add_factors;
      for (int64_t g = 0; g < n_groups; ++g, at += panel_) at[column_] = std::byte(factors[g]);
    }
    for (int64_t first = 0; first < shape_.block; first += kCodeUnit) {
      PutUnit(block.codes.data() + first, at);
      at += kCodeUnit * panel_ * shape_.bits / 8;
    }
    out_ += shape_.bytes() * panel_;
  }

 private:
  std::byte* Put16(uint16_t value, std::byte* at) {
    std::memcpy(at + 2 * column_, &value, sizeof(value));
    return at + 2 * panel_;
  }

  void PutUnit(const uint8_t* codes, std::byte* unit) {
    const int64_t half = kCodeUnit / 2 * panel_, side = shape_.side();
    for (int64_t k = 0; k < kCodeUnit; ++k) {
      const int64_t place = (k / side * panel_ + column_) * side + k % side;
      if (shape_.bits == 8) {
        unit[place] = std::byte{codes[k]};
        continue;
      }
      unit[place % half] |= std::byte(codes[k] % 16 << (place < half ? 0 : 4));
      const int high_bits = shape_.bits - 4, high = codes[k] >> 4;
      if (high == 0) continue;
      const int64_t plane = kCodeUnit * panel_ * high_bits / 8;  // bytes
      unit[half + place % plane] |= std::byte(high << place / plane * high_bits);
    }
  }

  const CodeShape shape_;
  const int64_t panel_, column_;
  std::byte* out_;
};

void PackInt8(const TensorView& part, int64_t row, Packer& packer) {
  const int64_t n_in = part.shape[1];
  std::vector<float> numbers(n_in);
  LoadRow(part, row, numbers.data());
  CodedBlock block;
  for (int64_t first = 0; first < n_in; first += kNarrowBlock) {
    const int64_t n = std::min(kNarrowBlock, n_in - first);
    block.codes.fill(0);
    NarrowRow({numbers.data() + first, static_cast<size_t>(n)}, StorageType::kInt8,
              block.codes.data(), &block.scale, 1);
    packer.Add(block);
  }
}

}  // namespace

std::optional<CodeFormat> CodeFormatOf(DType dtype) {
  for (const auto& [type, format] : kFormats) {
    if (type == dtype) return format;
  }
  return std::nullopt;
}

std::string_view CodeFormatName(CodeFormat format) {
  for (const auto& [type, other] : kFormats) {
    if (other == format) return DTypeName(type);
  }
  return "int8";
}

void PackCodes(const TensorView& part, int64_t row, CodeFormat format, int64_t panel,
               int64_t column, std::byte* out) {
  Packer packer(format, panel, column, out);
  if (format == CodeFormat::kInt8) return PackInt8(part, row, packer);
  LK_CHECK(CodeFormatOf(part.dtype) == format);
  const int64_t n_blocks = part.shape[1] / DTypeBlockSize(part.dtype);
  const size_t block_bytes = DTypeBytes(part.dtype);
  const std::byte* blocks = part.data + StoredRow(part, row) * n_blocks * block_bytes;
  CodedBlock block;
  for (int64_t i = 0; i < n_blocks; ++i) {
    ReadCodes(part.dtype, blocks + i * block_bytes, block);
    packer.Add(block);
  }
}

}  // namespace lowkey

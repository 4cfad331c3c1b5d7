#include "engine/loader/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/loader/byte_reader.h"

namespace lowkey {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kMaxDims = 4;
constexpr size_t kMaxNameBytes = 256;
constexpr int64_t kDefaultAlignment = 32, kMaxAlignment = 65536;
// The fewest bytes that the file spends on a key with its value, and on a tensor's description.
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 4 + 8;
// The charge for a tensor in the tables by name, without the names.
constexpr size_t kTensorBytes = 512;

struct FormatType {
  uint32_t number;
  DType dtype;
};
constexpr FormatType kFormatTypes[] = {
    {0, DType::kF32},     {1, DType::kF16},     {2, DType::kQ4_0},  {3, DType::kQ4_1},
    {6, DType::kQ5_0},    {7, DType::kQ5_1},    {8, DType::kQ8_0},  {10, DType::kQ2_K},
    {11, DType::kQ3_K},   {12, DType::kQ4_K},   {13, DType::kQ5_K}, {14, DType::kQ6_K},
    {20, DType::kIQ4_NL}, {23, DType::kIQ4_XS}, {26, DType::kI32},  {27, DType::kI64},
    {30, DType::kBF16},   {39, DType::kMXFP4},
};
struct ForeignType {
  uint32_t number;
  const char* name;
};
constexpr ForeignType kForeignTypes[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {24, "I8"},     {25, "I16"},
    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {40, "NVFP4"},
};

// A tensor's description; its bytes begin at `offset` of the data section.
struct GgufTensor {
  std::string name;
  std::optional<DType> dtype;  // nullopt: foreign
  std::string type_name;
  std::vector<int64_t> shape;
  uint64_t offset = 0, size_bytes = 0;
};

absl::Status Invalid(const std::string& where, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", problem));
}

struct Header {
  uint64_t n_tensors = 0, n_pairs = 0;
};

absl::StatusOr<Header> ReadHeader(ByteReader& reader, const std::string& name) {
  const auto magic = reader.Number<uint32_t>();
  if (magic != kMagic) return Invalid(name, "no GGUF file: expected one that begins with \"GGUF\"");
  const auto version = reader.Number<uint32_t>();
  const auto n_tensors = reader.Number<uint64_t>(), n_pairs = reader.Number<uint64_t>();
  if (!n_pairs.has_value()) return Invalid(name, "ends in its header, expected 24 bytes");
  if (*version != 2 && *version != 3) {
    return absl::UnimplementedError(
        absl::StrCat(name, ": GGUF version ", *version, ", expected 2 or 3 (little-endian)"));
  }
  if (*n_pairs > reader.n_left() / kMinPairBytes) {
    return Invalid(name, absl::StrCat(*n_pairs, " metadata keys, expected what fits in ",
                                      reader.n_left(), " bytes"));
  }
  if (*n_tensors > reader.n_left() / kMinTensorBytes) {
    return Invalid(name, absl::StrCat(*n_tensors, " tensors, expected what fits in ",
                                      reader.n_left(), " bytes"));
  }
  return Header{*n_tensors, *n_pairs};
}

// The file lists the dimension of neighboring elements first.
absl::StatusOr<std::vector<int64_t>> ReadShape(ByteReader& reader) {
  const auto n_dims = reader.Number<uint32_t>();
  if (!n_dims.has_value()) return absl::InvalidArgumentError("cut short before its dimensions");
  if (*n_dims > kMaxDims) {
    return absl::InvalidArgumentError(
        absl::StrCat(*n_dims, " dimensions, expected at most ", kMaxDims));
  }
  std::vector<int64_t> shape(*n_dims);
  for (int64_t& size : shape) {
    const auto number = reader.Number<uint64_t>();
    if (!number.has_value()) return absl::InvalidArgumentError("cut short in its dimensions");
    if (*number > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return absl::InvalidArgumentError(
          absl::StrCat("dimension ", *number, ", expected below 2^63"));
    }
    size = static_cast<int64_t>(*number);
  }
  std::reverse(shape.begin(), shape.end());
  return shape;
}

void SetType(uint32_t number, GgufTensor& tensor) {
  tensor.type_name = absl::StrCat("type ", number);
  for (const FormatType& type : kFormatTypes) {
    if (type.number != number) continue;
    tensor.dtype = type.dtype;
    tensor.type_name = std::string(DTypeName(type.dtype));
  }
  for (const ForeignType& type : kForeignTypes) {
    if (type.number == number) tensor.type_name = type.name;
  }
}

absl::Status CountBytes(GgufTensor& tensor) {
  const int64_t block_size = DTypeBlockSize(*tensor.dtype);
  const std::string shape = absl::StrCat("shape ", ShapeString(tensor.shape));
  const int64_t row_size = tensor.shape.empty() ? 1 : tensor.shape.back();
  if (row_size % block_size != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        shape, " of ", tensor.type_name, ", expected rows of a multiple of ", block_size));
  }
  std::vector<int64_t> counts = tensor.shape;  // of blocks in a row
  if (!counts.empty()) counts.back() /= block_size;
  const auto n_bytes = CheckedProduct(static_cast<int64_t>(DTypeBytes(*tensor.dtype)), counts);
  if (!n_bytes.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(shape, " overflows, expected a product below 2^63 bytes"));
  }
  tensor.size_bytes = static_cast<uint64_t>(*n_bytes);
  return absl::OkStatus();
}

absl::Status ReadDescription(ByteReader& reader, uint64_t alignment, GgufTensor& tensor) {
  LK_ASSIGN_OR_RETURN(tensor.shape, ReadShape(reader));
  const auto type = reader.Number<uint32_t>();
  const auto offset = reader.Number<uint64_t>();
  if (!offset.has_value()) return absl::InvalidArgumentError("cut short before its offset");
  SetType(*type, tensor);
  if (*offset % alignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("offset ", *offset, ", expected a multiple of ", alignment));
  }
  tensor.offset = *offset;
  return tensor.dtype.has_value() ? CountBytes(tensor) : absl::OkStatus();
}

absl::StatusOr<std::vector<GgufTensor>> ReadTensors(ByteReader& reader, uint64_t count,
                                                    uint64_t alignment, const std::string& name,
                                                    LoadAccount& account) {
  std::vector<GgufTensor> tensors;
  for (uint64_t i = 0; i < count; ++i) {
    GgufTensor tensor;
    const auto tensor_name = reader.String();
    if (!tensor_name.has_value() || tensor_name->empty() || tensor_name->size() > kMaxNameBytes) {
      return Invalid(name, absl::StrCat("tensor ", i, ": no name of 1..", kMaxNameBytes, " bytes"));
    }
    LK_RETURN_IF_ERROR(account.Charge(name, kTensorBytes + 3 * tensor_name->size()));
    tensor.name = std::string(*tensor_name);
    const absl::Status status = ReadDescription(reader, alignment, tensor);
    if (!status.ok()) {
      return Invalid(absl::StrCat(name, ": ", tensor.name), std::string(status.message()));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Checks that every tensor lies in the data section and that no two overlap.
absl::Status CheckPlaces(std::vector<GgufTensor>& tensors, uint64_t data_bytes,
                         const std::string& name) {
  std::sort(tensors.begin(), tensors.end(), [](const GgufTensor& a, const GgufTensor& b) {
    return std::tie(a.offset, a.size_bytes, a.name) < std::tie(b.offset, b.size_bytes, b.name);
  });
  const GgufTensor* before = nullptr;
  for (const GgufTensor& tensor : tensors) {
    if (tensor.offset > data_bytes || tensor.size_bytes > data_bytes - tensor.offset) {
      return Invalid(absl::StrCat(name, ": ", tensor.name),
                     absl::StrCat("data at ", tensor.offset, " of ", tensor.size_bytes,
                                  " bytes, expected it inside the ", data_bytes,
                                  " bytes of data in the file"));
    }
    if (tensor.size_bytes == 0) continue;
    if (before != nullptr && tensor.offset < before->offset + before->size_bytes) {
      return Invalid(
          absl::StrCat(name, ": ", tensor.name),
          absl::StrCat("data at ", tensor.offset, ", expected at least ",
                       before->offset + before->size_bytes, ", where ", before->name, " ends"));
    }
    before = &tensor;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ReadAlignment(const GgufMetadata& metadata) {
  constexpr char kKey[] = "general.alignment";
  LK_ASSIGN_OR_RETURN(const auto alignment, metadata.Int(kKey, 8, kMaxAlignment));
  const auto value = static_cast<uint64_t>(alignment.value_or(kDefaultAlignment));
  if (!std::has_single_bit(value)) {
    return metadata.Error(kKey, absl::StrCat("a power of two in 8..", kMaxAlignment));
  }
  return value;
}

}  // namespace

absl::StatusOr<GgufIndex> ParseGguf(absl::Span<const std::byte> bytes, const std::string& name) {
  LoadAccount account;
  return ParseGguf(bytes, name, account);
}

absl::StatusOr<GgufIndex> ParseGguf(absl::Span<const std::byte> bytes, const std::string& name,
                                    LoadAccount& account) {
  ByteReader reader(bytes);
  LK_ASSIGN_OR_RETURN(const Header header, ReadHeader(reader, name));
  GgufIndex index;
  LK_ASSIGN_OR_RETURN(index.metadata, GgufMetadata::Read(reader, header.n_pairs, name, account));
  LK_ASSIGN_OR_RETURN(const uint64_t alignment, ReadAlignment(index.metadata));
  LK_ASSIGN_OR_RETURN(std::vector<GgufTensor> tensors,
                      ReadTensors(reader, header.n_tensors, alignment, name, account));
  // A file without tensors may end before the padding.
  const size_t data_begin =
      std::min<size_t>(bytes.size(), (reader.position() + alignment - 1) / alignment * alignment);
  const absl::Span<const std::byte> data = bytes.subspan(data_begin);
  LK_RETURN_IF_ERROR(CheckPlaces(tensors, data.size(), name));
  for (GgufTensor& tensor : tensors) {
    if (index.tensors.contains(tensor.name) || index.foreign_dtypes.contains(tensor.name)) {
      return Invalid(absl::StrCat(name, ": ", tensor.name), "twice, expected each tensor once");
    }
    if (tensor.dtype.has_value()) {
      index.tensors[tensor.name] = {*tensor.dtype, std::move(tensor.shape),
                                    data.data() + tensor.offset};
    } else {
      index.foreign_dtypes[tensor.name] = std::move(tensor.type_name);
    }
  }
  return index;
}

}  // namespace lowkey

#include "engine/loader/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/loader/byte_reader.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr int kMaxDepth = 3;  // header, tensor, shape
constexpr size_t kMaxDims = 8;
// The charge for a tensor in the tables by name, without the names.
constexpr size_t kTensorBytes = 512;

struct FormatDType {
  const char* name;
  int64_t bytes;
  std::optional<DType> ours;
};
constexpr FormatDType kDTypes[] = {
    {"F32", 4, DType::kF32},  {"F16", 2, DType::kF16},  {"BF16", 2, DType::kBF16},
    {"I32", 4, DType::kI32},  {"I64", 8, DType::kI64},  {"BOOL", 1, std::nullopt},
    {"U8", 1, std::nullopt},  {"I8", 1, std::nullopt},  {"F8_E5M2", 1, std::nullopt},
    {"U16", 2, std::nullopt}, {"I16", 2, std::nullopt}, {"F8_E4M3", 1, std::nullopt},
    {"U32", 4, std::nullopt}, {"U64", 8, std::nullopt}, {"F64", 8, std::nullopt},
};

// A tensor's description in the header; its bytes are [begin, end) of the data section.
struct Entry {
  std::string name;
  const FormatDType* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

absl::Status EntryError(const JsonFields& fields, const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat(fields.name(), ": ", problem));
}

absl::StatusOr<const FormatDType*> ReadDType(const JsonFields& fields) {
  LK_ASSIGN_OR_RETURN(const std::optional<std::string> name, fields.String("dtype"));
  for (const FormatDType& dtype : kDTypes) {
    if (name == dtype.name) return &dtype;
  }
  return fields.Error("dtype", "a dtype of the safetensors format");
}

// Reads a list of non-negative integers.
absl::StatusOr<std::vector<uint64_t>> ReadSizes(const JsonFields& fields, const char* key,
                                                size_t max_count) {
  const std::string expected =
      absl::StrCat("a list of at most ", max_count, " non-negative integers");
  const json* list = fields.Find(key);
  if (list == nullptr || !list->is_array() || list->size() > max_count) {
    return fields.Error(key, expected);
  }
  std::vector<uint64_t> sizes;
  for (const json& item : *list) {
    if (!item.is_number_unsigned() ||
        item.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return fields.Error(key, expected);
    }
    sizes.push_back(item.get<uint64_t>());
  }
  return sizes;
}

absl::StatusOr<Entry> ReadEntry(const std::string& tensor, const JsonFields& fields,
                                uint64_t data_bytes) {
  Entry entry;
  entry.name = tensor;
  LK_ASSIGN_OR_RETURN(entry.dtype, ReadDType(fields));
  LK_ASSIGN_OR_RETURN(const std::vector<uint64_t> shape, ReadSizes(fields, "shape", kMaxDims));
  LK_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets, ReadSizes(fields, "data_offsets", 2));
  entry.shape.assign(shape.begin(), shape.end());
  if (offsets.size() != 2) return fields.Error("data_offsets", "[begin, end]");
  entry.begin = offsets[0];
  entry.end = offsets[1];
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return fields.Error("data_offsets", absl::StrCat("begin <= end <= ", data_bytes,
                                                     ", the bytes of data in the file"));
  }
  const std::optional<int64_t> expected = CheckedProduct(entry.dtype->bytes, entry.shape);
  if (!expected.has_value()) {
    return EntryError(fields, absl::StrCat("shape ", ShapeString(entry.shape),
                                           " overflows, expected a product below 2^63 bytes"));
  }
  if (entry.end - entry.begin != static_cast<uint64_t>(*expected)) {
    return EntryError(
        fields, absl::StrCat(entry.end - entry.begin, " bytes of data, expected ", *expected,
                             " for shape ", ShapeString(entry.shape), " of ", entry.dtype->name));
  }
  return entry;
}

absl::Status CheckNoOverlap(std::vector<Entry>& entries, const std::string& name) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  const Entry* before = nullptr;
  for (const Entry& entry : entries) {
    if (entry.begin == entry.end) continue;
    if (before != nullptr && entry.begin < before->end) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": ", entry.name, ": data starts at ", entry.begin,
                       ", expected at least ", before->end, ", where ", before->name, " ends"));
    }
    before = &entry;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ReadHeaderBytes(absl::Span<const std::byte> bytes,
                                         const std::string& name) {
  if (bytes.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", bytes.size(), " bytes, expected at least ", kLengthBytes));
  }
  const uint64_t header_bytes = *ByteReader(bytes).Number<uint64_t>();
  const uint64_t most = std::min<uint64_t>(kMaxHeaderBytes, bytes.size() - kLengthBytes);
  if (header_bytes > most) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": header of ", header_bytes,
                                                   " bytes, expected at most ", most,
                                                   " in a file of ", bytes.size(), " bytes"));
  }
  return header_bytes;
}

std::string HeaderText(absl::Span<const TensorSpec> specs) {
  json header = json::object();
  uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    const uint64_t end =
        offset + *CheckedProduct(static_cast<int64_t>(DTypeBytes(spec.dtype)), spec.shape);
    header[spec.name] = {{"dtype", std::string(DTypeName(spec.dtype))},
                         {"shape", spec.shape},
                         {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', true, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data starts aligned
  return text;
}

absl::Status WriteError(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<SafetensorsIndex> ParseSafetensors(absl::Span<const std::byte> bytes,
                                                  const std::string& name) {
  LoadAccount account;
  return ParseSafetensors(bytes, name, account);
}

absl::StatusOr<SafetensorsIndex> ParseSafetensors(absl::Span<const std::byte> bytes,
                                                  const std::string& name, LoadAccount& account) {
  LK_ASSIGN_OR_RETURN(const uint64_t header_bytes, ReadHeaderBytes(bytes, name));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes,
                              header_bytes);
  LK_ASSIGN_OR_RETURN(const json header, ParseJsonObject(text, name, account, kMaxDepth));
  const absl::Span<const std::byte> data = bytes.subspan(kLengthBytes + header_bytes);

  std::vector<Entry> entries;
  for (const auto& [tensor, description] : header.items()) {
    if (tensor == "__metadata__") continue;
    if (tensor.size() > kMaxTensorNameBytes) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": ", ShortText(tensor), ": a name of ",
                                                     tensor.size(), " bytes, expected at most ",
                                                     kMaxTensorNameBytes));
    }
    LK_RETURN_IF_ERROR(account.Charge(name, kTensorBytes + 3 * tensor.size()));
    const std::string where = absl::StrCat(name, ": ", tensor);
    if (!description.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", description.type_name(), ", expected an object"));
    }
    LK_ASSIGN_OR_RETURN(Entry entry,
                        ReadEntry(tensor, JsonFields(description, where), data.size()));
    entries.push_back(std::move(entry));
  }
  LK_RETURN_IF_ERROR(CheckNoOverlap(entries, name));

  SafetensorsIndex index;
  for (Entry& entry : entries) {
    if (entry.dtype->ours.has_value()) {
      index.tensors[entry.name] = {*entry.dtype->ours, std::move(entry.shape),
                                   data.data() + entry.begin};
    } else {
      index.foreign_dtypes[entry.name] = entry.dtype->name;
    }
  }
  return index;
}

absl::StatusOr<Safetensors> OpenSafetensors(const std::string& path) {
  LoadAccount account;
  return OpenSafetensors(path, account);
}

absl::StatusOr<Safetensors> OpenSafetensors(const std::string& path, LoadAccount& account) {
  Safetensors result;
  LK_ASSIGN_OR_RETURN(result.file, MappedFile::Open(path));
  LK_ASSIGN_OR_RETURN(result.index,
                      ParseSafetensors({result.file->data(), result.file->size_bytes()},
                                       result.file->name(), account));
  return result;
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path,
                                                            absl::Span<const TensorSpec> specs) {
  SafetensorsWriter writer;
  writer.path_ = path;
  absl::flat_hash_set<std::string> names;
  for (const TensorSpec& spec : specs) {
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", spec.name, " twice"));
    }
    if (DTypeBlockSize(spec.dtype) > 1) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", spec.name, ": dtype ",
                                                     std::string(DTypeName(spec.dtype)),
                                                     ", expected one of the safetensors format"));
    }
    const auto bytes = CheckedProduct(static_cast<int64_t>(DTypeBytes(spec.dtype)), spec.shape);
    if (!bytes.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", spec.name, ": shape ",
                                                     ShapeString(spec.shape),
                                                     ", expected non-negative, below 2^63 bytes"));
    }
    writer.n_left_bytes_ += static_cast<uint64_t>(*bytes);
  }
  const std::string header = HeaderText(specs);
  writer.file_.reset(std::fopen(path.c_str(), "wb"));
  if (writer.file_ == nullptr) return WriteError(path);
  const uint64_t length = header.size();  // little-endian, as byte_reader.h asserts
  if (std::fwrite(&length, 1, kLengthBytes, writer.file_.get()) != kLengthBytes ||
      std::fwrite(header.data(), 1, header.size(), writer.file_.get()) != header.size()) {
    return WriteError(path);
  }
  return writer;
}

absl::Status SafetensorsWriter::Append(absl::Span<const std::byte> bytes) {
  if (file_ == nullptr || bytes.size() > n_left_bytes_) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": ", bytes.size(), " more bytes, expected at most ", n_left_bytes_));
  }
  if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    return WriteError(path_);
  }
  n_left_bytes_ -= bytes.size();
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Finish() {
  if (file_ == nullptr || n_left_bytes_ != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": ", n_left_bytes_, " bytes missing at the end"));
  }
  if (std::fclose(file_.release()) != 0) return WriteError(path_);
  return absl::OkStatus();
}

absl::Status WriteSafetensors(const std::string& path,
                              absl::Span<const std::pair<std::string, TensorView>> tensors) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, tensor.dtype, tensor.shape});
  LK_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, specs));
  for (const auto& [name, tensor] : tensors) {
    LK_RETURN_IF_ERROR(writer.Append({tensor.data, tensor.size_bytes()}));
  }
  return writer.Finish();
}

}  // namespace lowkey

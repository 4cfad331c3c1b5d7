#include "engine/loader/tensor_table.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr size_t kMaxIndexBytes = size_t{64} << 20;
constexpr size_t kMaxShards = 4096;
constexpr int kMaxIndexDepth = 8;
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

}  // namespace

absl::StatusOr<TensorTable> TensorTable::OpenDirectory(const std::string& directory,
                                                       LoadAccount& account) {
  TensorTable table;
  auto single = OpenSafetensors(absl::StrCat(directory, "/", kSingleFile), account);
  if (!single.ok() && !absl::IsNotFound(single.status())) return single.status();
  if (single.ok()) {
    table.TakeAll(single->file, single->index.tensors, single->index.foreign_dtypes);
    return table;
  }
  auto index = MappedFile::Open(absl::StrCat(directory, "/", kIndexFile), kMaxIndexBytes);
  if (absl::IsNotFound(index.status())) {
    return absl::NotFoundError(absl::StrCat(directory, ": no ", kSingleFile, " and no ", kIndexFile,
                                            ", expected one of them"));
  }
  LK_RETURN_IF_ERROR(index.status());
  LK_RETURN_IF_ERROR(table.OpenShards(directory, (*index)->text(), account));
  return table;
}

absl::StatusOr<TensorTable> TensorTable::OpenFile(const std::string& directory,
                                                  const std::string& name, LoadAccount& account) {
  if (!IsPlainFileName(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        ShortText(name), ": expected the name of a file in the checkpoint's directory"));
  }
  LK_ASSIGN_OR_RETURN(Safetensors file,
                      OpenSafetensors(absl::StrCat(directory, "/", name), account));
  TensorTable table;
  table.TakeAll(file.file, file.index.tensors, file.index.foreign_dtypes);
  return table;
}

void TensorTable::Each(absl::FunctionRef<void(const std::string&, const TensorView&)> body) const {
  for (const auto& [name, entry] : tensors_) {
    if (entry.dtype_is_usable) body(name, entry.view);
  }
}

absl::StatusOr<int64_t> TensorTable::Rows(const std::string& name, int64_t min, int64_t max) const {
  const auto it = tensors_.find(name);
  const bool is_matrix = it != tensors_.end() && it->second.view.shape.size() == 2;
  if (is_matrix && it->second.view.shape[0] >= min && it->second.view.shape[0] <= max) {
    return it->second.view.shape[0];
  }
  return absl::InvalidArgumentError(
      absl::StrCat(origin_, ": ", name, ": ",
                   it == tensors_.end() ? "missing" : ShapeString(it->second.view.shape),
                   ", expected a matrix of ", min, "..", max, " rows"));
}

TensorTable TensorTable::OfGguf(const Gguf& gguf) {
  TensorTable table;
  table.dtypes_ =
      "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS "
      "or MXFP4";
  table.TakeAll(gguf.file, gguf.index.tensors, gguf.index.foreign_dtypes);
  for (const auto& [name, part] : gguf.part_of) {
    table.tensors_[name].file = gguf.other_files[part]->name();
  }
  table.files_.insert(table.files_.end(), gguf.other_files.begin(), gguf.other_files.end());
  return table;
}

absl::StatusOr<const TensorTable::Entry*> TensorTable::FindAndMark(
    const std::string& name, const std::vector<int64_t>& shape) {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(name), ": missing, expected a tensor of shape ", ShapeString(shape)));
  }
  taken_.insert(name);
  return &it->second;
}

absl::StatusOr<TensorView> TensorTable::CheckShape(const Entry& entry, const std::string& where,
                                                   const std::vector<int64_t>& shape) {
  if (entry.view.shape == shape) return entry.view;
  return absl::InvalidArgumentError(absl::StrCat(where, ": shape ", ShapeString(entry.view.shape),
                                                 ", expected ", ShapeString(shape)));
}

absl::StatusOr<TensorView> TensorTable::Take(const std::string& name,
                                             const std::vector<int64_t>& shape) {
  LK_ASSIGN_OR_RETURN(const Entry* entry, FindAndMark(name, shape));
  if (!entry->dtype_is_usable) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(name), ": dtype ", entry->dtype, ", expected ", dtypes_));
  }
  return CheckShape(*entry, Where(name), shape);
}

absl::StatusOr<TensorView> TensorTable::TakeInts(const std::string& name,
                                                 const std::vector<int64_t>& shape) {
  LK_ASSIGN_OR_RETURN(const Entry* entry, FindAndMark(name, shape));
  if (entry->dtype != DTypeName(DType::kI32)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Where(name), ": dtype ", entry->dtype, ", expected I32"));
  }
  return CheckShape(*entry, Where(name), shape);
}

std::string TensorTable::Where(const std::string& name) const {
  const auto it = tensors_.find(name);
  return absl::StrCat(it == tensors_.end() ? origin_ : it->second.file, ": ", name);
}

absl::Status TensorTable::CheckNothingLeft(const std::function<bool(std::string_view)>& is_harmless,
                                           const std::string& reason) const {
  for (const auto& [name, entry] : tensors_) {
    if (taken_.contains(name) || is_harmless(name)) continue;
    const std::string shape =
        entry.dtype_is_usable ? absl::StrCat(" of shape ", ShapeString(entry.view.shape)) : "";
    return absl::InvalidArgumentError(
        absl::StrCat(entry.file, ": ", name, ": a tensor", shape, ", expected none: ", reason));
  }
  return absl::OkStatus();
}

TensorTable::Entry TensorTable::MakeEntry(const std::string& file, const TensorView& view) {
  return {file, std::string(DTypeName(view.dtype)), DTypeIsReal(view.dtype), view};
}

void TensorTable::TakeAll(std::shared_ptr<const MappedFile> file,
                          const absl::flat_hash_map<std::string, TensorView>& tensors,
                          const absl::flat_hash_map<std::string, std::string>& foreign_dtypes) {
  origin_ = file->name();
  for (const auto& [name, view] : tensors) tensors_[name] = MakeEntry(origin_, view);
  for (const auto& [name, dtype] : foreign_dtypes) tensors_[name] = {origin_, dtype, false, {}};
  files_.push_back(std::move(file));
}

// Adds tensor `name` of an opened shard.
absl::Status TensorTable::Add(const Safetensors& shard, const std::string& name) {
  const std::string& file = shard.file->name();
  if (const auto it = shard.index.tensors.find(name); it != shard.index.tensors.end()) {
    tensors_[name] = MakeEntry(file, it->second);
    return absl::OkStatus();
  }
  const auto foreign = shard.index.foreign_dtypes.find(name);
  if (foreign == shard.index.foreign_dtypes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": ", name, ": missing, expected here by ", kIndexFile));
  }
  tensors_[name] = {file, foreign->second, false, {}};
  return absl::OkStatus();
}

absl::Status TensorTable::OpenShards(const std::string& directory, std::string_view index_json,
                                     LoadAccount& account) {
  origin_ = kIndexFile;
  LK_ASSIGN_OR_RETURN(const json index,
                      ParseJsonObject(index_json, kIndexFile, account, kMaxIndexDepth));
  const JsonFields fields(index, kIndexFile);
  LK_ASSIGN_OR_RETURN(const auto weight_map, fields.Object("weight_map"));
  if (!weight_map.has_value()) return fields.Error("weight_map", "an object");
  std::map<std::string, std::vector<std::string>> names_by_file;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || !IsPlainFileName(file.get<std::string>())) {
      return weight_map->Error(name.c_str(), "the name of a file in this directory");
    }
    names_by_file[file.get<std::string>()].push_back(name);
    if (names_by_file.size() > kMaxShards) {
      return fields.Error("weight_map", absl::StrCat("at most ", kMaxShards, " files"));
    }
  }
  for (const auto& [file, names] : names_by_file) {
    LK_ASSIGN_OR_RETURN(Safetensors shard,
                        OpenSafetensors(absl::StrCat(directory, "/", file), account));
    for (const auto& other : files_) {
      if (!shard.file->IsSameFile(*other)) continue;
      return absl::InvalidArgumentError(absl::StrCat(kIndexFile, ": ", file, ": the same file as ",
                                                     other->name(), ", expected another"));
    }
    for (const std::string& name : names) LK_RETURN_IF_ERROR(Add(shard, name));
    files_.push_back(std::move(shard.file));
  }
  return absl::OkStatus();
}

}  // namespace lowkey

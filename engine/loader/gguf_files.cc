#include "engine/loader/gguf_files.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/load_account.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr char kSplitNo[] = "split.no", kSplitCount[] = "split.count",
               kSplitTensors[] = "split.tensors.count";
constexpr int64_t kMaxTensors = (int64_t{1} << 31) - 1;  // split.tensors.count is an int32

bool IsGgufName(std::string_view name) { return name.ends_with(".gguf"); }

// The name of a part: STEM-00002-of-00003.gguf.
struct PartName {
  std::string stem;
  int64_t number = 0, count = 0;  // 1 <= number <= count

  std::string OfPart(int64_t i) const {
    return absl::StrFormat("%s-%05d-of-%05d.gguf", stem, i, count);
  }
  bool IsSameModel(const PartName& other) const {
    return stem == other.stem && count == other.count;
  }
};

std::optional<int64_t> TakeFiveDigits(std::string_view& text) {
  if (text.size() < 5) return std::nullopt;
  int64_t number = 0;
  for (const char digit : text.substr(text.size() - 5)) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(digit))) return std::nullopt;
    number = 10 * number + (digit - '0');
  }
  text.remove_suffix(5);
  return number;
}

bool TakeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

std::optional<PartName> ParsePartName(std::string_view name) {
  if (!TakeSuffix(name, ".gguf")) return std::nullopt;
  const auto count = TakeFiveDigits(name);
  if (!count.has_value() || !TakeSuffix(name, "-of-")) return std::nullopt;
  const auto number = TakeFiveDigits(name);
  if (!number.has_value() || !TakeSuffix(name, "-")) return std::nullopt;
  if (*number < 1 || *number > *count) return std::nullopt;
  return PartName{std::string(name), *number, *count};
}

// Checks that a file's metadata say what its name says.
absl::Status CheckPart(const GgufMetadata& metadata, const PartName& name) {
  LK_ASSIGN_OR_RETURN(const auto count, metadata.Int(kSplitCount, 0, kMaxGgufParts));
  if (count != name.count) {
    return metadata.Error(kSplitCount, absl::StrCat(name.count, ", as in the file's name"));
  }
  LK_ASSIGN_OR_RETURN(const auto number, metadata.Int(kSplitNo, 0, kMaxGgufParts));
  if (number != name.number - 1) {
    return metadata.Error(
        kSplitNo, absl::StrCat(name.number - 1, " in part ", name.number, " of ", name.count));
  }
  return absl::OkStatus();
}

struct Part {
  std::shared_ptr<const MappedFile> file;
  GgufIndex index;
};

absl::StatusOr<Part> OpenPart(const std::string& path, LoadAccount& account) {
  Part part;
  LK_ASSIGN_OR_RETURN(part.file, MappedFile::Open(path));
  LK_ASSIGN_OR_RETURN(part.index, ParseGguf({part.file->data(), part.file->size_bytes()},
                                            part.file->name(), account));
  return part;
}

// Moves the tensors of one more part into the model's.
absl::Status AddPart(Part part, Gguf& gguf) {
  const size_t n_parts = gguf.other_files.size();
  const auto add = [&](auto& from, auto& to) -> absl::Status {
    for (auto& [name, value] : from) {
      if (gguf.index.tensors.contains(name) || gguf.index.foreign_dtypes.contains(name)) {
        const auto other = gguf.part_of.find(name);
        const MappedFile& file =
            other == gguf.part_of.end() ? *gguf.file : *gguf.other_files[other->second];
        return absl::InvalidArgumentError(absl::StrCat(part.file->name(), ": ", name,
                                                       ": a tensor of ", file.name(),
                                                       " too, expected each tensor in one part"));
      }
    }
    for (auto& [name, value] : from) {
      gguf.part_of[name] = n_parts;
      to[name] = std::move(value);
    }
    return absl::OkStatus();
  };
  LK_RETURN_IF_ERROR(add(part.index.tensors, gguf.index.tensors));
  LK_RETURN_IF_ERROR(add(part.index.foreign_dtypes, gguf.index.foreign_dtypes));
  gguf.other_files.push_back(std::move(part.file));
  return absl::OkStatus();
}

absl::Status AddOtherParts(const std::string& directory, const PartName& first,
                           LoadAccount& account, Gguf& gguf) {
  const GgufMetadata& metadata = gguf.index.metadata;
  LK_ASSIGN_OR_RETURN(const int64_t n_tensors, metadata.RequiredInt(kSplitTensors, 0, kMaxTensors));
  for (int64_t i = 2; i <= first.count; ++i) {
    auto part = OpenPart(absl::StrCat(directory, first.OfPart(i)), account);
    if (!part.ok()) {
      return absl::Status(part.status().code(),
                          absl::StrCat(std::string(part.status().message()), " (part ", i, " of ",
                                       first.count, " of the model)"));
    }
    const GgufMetadata& of_part = part->index.metadata;
    LK_RETURN_IF_ERROR(CheckPart(of_part, {first.stem, i, first.count}));
    LK_ASSIGN_OR_RETURN(const auto its_n_tensors, of_part.Int(kSplitTensors, 0, kMaxTensors));
    if (its_n_tensors.value_or(n_tensors) != n_tensors) {
      return of_part.Error(kSplitTensors, absl::StrCat(n_tensors, ", as in the first part"));
    }
    LK_RETURN_IF_ERROR(AddPart(*std::move(part), gguf));
  }
  const size_t n_found = gguf.index.tensors.size() + gguf.index.foreign_dtypes.size();
  if (n_found != static_cast<size_t>(n_tensors)) {
    return metadata.Error(kSplitTensors, absl::StrCat(n_found, ", the number of tensors in all ",
                                                      first.count, " parts"));
  }
  return absl::OkStatus();
}

// Returns the first part, when all names are of one split model's parts.
absl::StatusOr<std::optional<std::string>> FirstPart(const std::string& directory,
                                                     const std::vector<std::string>& names) {
  const auto first = ParsePartName(names[0]);  // of the least number: names are sorted
  for (const std::string& name : names) {
    const auto part = ParsePartName(name);
    if (!part.has_value() || !part->IsSameModel(*first)) return std::nullopt;
  }
  if (first->number == 1) return names[0];
  return absl::NotFoundError(absl::StrCat(directory, ": holds ", names[0], ", expected ",
                                          first->OfPart(1), " too, the first part"));
}

}  // namespace

absl::StatusOr<Gguf> OpenGguf(const std::string& path) {
  LoadAccount account;
  LK_ASSIGN_OR_RETURN(Part part, OpenPart(path, account));
  Gguf gguf;
  gguf.file = std::move(part.file);
  gguf.index = std::move(part.index);
  const GgufMetadata& metadata = gguf.index.metadata;
  LK_ASSIGN_OR_RETURN(const auto count, metadata.Int(kSplitCount, 0, kMaxGgufParts));
  if (count.value_or(0) <= 1) return gguf;
  const auto name = ParsePartName(gguf.file->name());
  if (!name.has_value()) {
    return metadata.Error(kSplitCount, absl::StrFormat("1 in a file of this name; the first part "
                                                       "of %d is called NAME-00001-of-%05d.gguf",
                                                       *count, *count));
  }
  LK_RETURN_IF_ERROR(CheckPart(metadata, *name));
  if (name->number != 1) {
    return absl::InvalidArgumentError(absl::StrCat(gguf.file->name(), ": part ", name->number,
                                                   " of ", name->count, ", expected the first, ",
                                                   name->OfPart(1)));
  }
  const std::string directory = path.substr(0, path.size() - gguf.file->name().size());
  LK_RETURN_IF_ERROR(AddOtherParts(directory, *name, account, gguf));
  return gguf;
}

absl::StatusOr<std::optional<std::string>> FindGguf(const std::string& model_path) {
  struct stat status;
  if (stat(model_path.c_str(), &status) != 0) return std::nullopt;
  if (!S_ISDIR(status.st_mode)) {
    return IsGgufName(model_path) ? std::make_optional(model_path) : std::nullopt;
  }
  if (stat(absl::StrCat(model_path, "/config.json").c_str(), &status) == 0) return std::nullopt;
  DIR* dir = opendir(model_path.c_str());
  if (dir == nullptr) return std::nullopt;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    if (IsGgufName(entry->d_name)) names.push_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  if (names.empty()) return std::nullopt;
  LK_ASSIGN_OR_RETURN(const auto first_part, FirstPart(model_path, names));
  if (names.size() > 1 && !first_part.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(model_path, ": holds ", names[0], " and ", names[1],
                     ", expected one .gguf file or the parts of one; name it instead"));
  }
  return absl::StrCat(model_path, "/", first_part.value_or(names[0]));
}

}  // namespace lowkey

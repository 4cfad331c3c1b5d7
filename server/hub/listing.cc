#include "server/hub/listing.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/hub/model_reference.h"

namespace lowkey {
namespace {

constexpr size_t kMaxPathBytes = 1024, kMaxPartBytes = 255;
constexpr int64_t kMaxFileBytes = int64_t{1} << 50;
constexpr int kMaxDepth = 16;
// An answer of 8 MiB that lists files takes a fifth of this.
constexpr size_t kMaxJsonBytes = size_t{256} << 20;

bool IsHexadecimal(std::string_view text, size_t n_digits) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == n_digits && std::all_of(text.begin(), text.end(), is_digit);
}

absl::StatusOr<HubFile> ReadFile(const JsonFields& fields) {
  HubFile file;
  LK_ASSIGN_OR_RETURN(const std::optional<std::string> path, fields.String("path"));
  if (!path.has_value() || !IsSafePath(*path)) {
    return fields.Error("path", "a relative path that stays in its folder, at most 1,024 bytes");
  }
  file.path = *path;
  LK_ASSIGN_OR_RETURN(file.n_bytes, fields.RequiredInt("size", {0, kMaxFileBytes}));
  LK_ASSIGN_OR_RETURN(const std::optional<JsonFields> lfs, fields.Object("lfs"));
  const JsonFields& digests = lfs.has_value() ? *lfs : fields;
  LK_ASSIGN_OR_RETURN(const std::optional<std::string> digest, digests.String("oid"));
  file.is_sha256 = lfs.has_value();
  if (!digest.has_value() || !IsHexadecimal(*digest, file.is_sha256 ? 64 : 40)) {
    return digests.Error("oid", file.is_sha256 ? "64 hexadecimal digits" : "40 hexadecimal digits");
  }
  file.digest = *digest;
  if (lfs.has_value()) {
    LK_ASSIGN_OR_RETURN(const int64_t n_bytes, lfs->RequiredInt("size", {0, kMaxFileBytes}));
    if (n_bytes != file.n_bytes) {
      return lfs->Error("size", absl::StrCat("the entry's own size, ", file.n_bytes));
    }
  }
  return file;
}

}  // namespace

bool IsSafePath(std::string_view path) {
  if (path.empty() || path.size() > kMaxPathBytes) return false;
  const auto is_bad = [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\'; };
  if (std::any_of(path.begin(), path.end(), is_bad)) return false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == ".." || part.size() > kMaxPartBytes) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

absl::StatusOr<std::vector<HubFile>> ParseListing(std::string_view text, const std::string& name) {
  // The reader takes objects. A text that closes the array early gives an object of more members,
  // or no JSON.
  const std::string object = absl::StrCat("{\"files\":", std::string(text), "}");
  LoadAccount account(kMaxJsonBytes);
  LK_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(object, name, account, kMaxDepth));
  const nlohmann::json& entries = *json.find("files");
  if (json.size() != 1 || !entries.is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected a JSON array of files"));
  }
  std::vector<HubFile> files;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string entry_name = absl::StrCat(name, ": entry ", i);
    if (!entries[i].is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(entry_name, ": expected an object"));
    }
    const JsonFields fields(entries[i], entry_name);
    LK_ASSIGN_OR_RETURN(const std::optional<std::string> type, fields.String("type"));
    if (type == "directory") continue;
    LK_ASSIGN_OR_RETURN(HubFile file, ReadFile(fields));
    files.push_back(std::move(file));
  }
  return files;
}

absl::Status CheckListing(const std::vector<HubFile>& files, const std::string& name) {
  if (files.size() > kMaxListedFiles) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", files.size(), " files, expected at most ", kMaxListedFiles));
  }
  std::set<std::string_view> paths;
  for (const HubFile& file : files) {
    if (paths.insert(file.path).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": \"", file.path, "\" appears twice"));
  }
  return absl::OkStatus();
}

std::string ListingText(const std::vector<HubFile>& files) {
  nlohmann::json entries = nlohmann::json::array();
  for (const HubFile& file : files) {
    nlohmann::json entry = {{"type", "file"}, {"path", file.path}, {"size", file.n_bytes}};
    if (file.is_sha256) {
      entry["lfs"] = {{"oid", file.digest}, {"size", file.n_bytes}};
    } else {
      entry["oid"] = file.digest;
    }
    entries.push_back(std::move(entry));
  }
  return entries.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<std::string> ParseCommitAnswer(std::string_view text, const std::string& name) {
  LoadAccount account(kMaxJsonBytes);
  LK_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(text, name, account));
  const JsonFields fields(json, name);
  LK_ASSIGN_OR_RETURN(const std::optional<std::string> commit, fields.String("sha"));
  if (!commit.has_value() || !IsCommit(*commit)) {
    return fields.Error("sha", "a commit of 40 hexadecimal digits");
  }
  return *commit;
}

}  // namespace lowkey

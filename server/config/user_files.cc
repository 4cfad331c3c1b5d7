#include "server/config/user_files.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"
#include "server/config/flags.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {
namespace {

constexpr std::string_view kSeparators = " \t\r\n\v\f,";
// Longer words are cut in messages.
constexpr size_t kMaxQuotedBytes = 32;

}  // namespace

absl::Status WriteTextFile(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool is_written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) == 0 && is_written) return absl::OkStatus();
  return FileError(path, "cannot be written");
}

absl::Status CheckWritable(const FlagValues& flags, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!flags.IsGiven(name)) continue;
    const std::string path = flags.Text(name);
    std::FILE* file = std::fopen(path.c_str(), "ab");
    if (file == nullptr || std::fclose(file) != 0) return FileError(path, "cannot be written");
  }
  return absl::OkStatus();
}

absl::Status CheckReplaceable(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return absl::FailedPreconditionError(path + ": not a regular file, expected one or none");
  }
  const std::string beside = path + ".part";
  const bool is_new = !std::filesystem::exists(beside, ignored);
  std::FILE* file = std::fopen(beside.c_str(), "ab");
  if (file == nullptr) return FileError(path, "cannot be written");
  std::fclose(file);
  if (is_new) std::remove(beside.c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ParseTokenIds(std::string_view text, const std::string& source,
                                                   int32_t vocab_size) {
  std::vector<int32_t> ids;
  size_t at = 0;
  while ((at = text.find_first_not_of(kSeparators, at)) != std::string_view::npos) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    int32_t id = -1;
    const auto parsed = std::from_chars(word.data(), word.data() + word.size(), id);
    const bool is_integer = parsed.ec == std::errc() && parsed.ptr == word.data() + word.size();
    if (!is_integer || id < 0 || id >= vocab_size) {
      const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(at), '\n');
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": line ", line, ": \"", TerminalSafe(word.substr(0, kMaxQuotedBytes)),
          "\", expected a token id in 0..", vocab_size - 1));
    }
    ids.push_back(id);
    at = end;
  }
  if (ids.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": no token id, expected 1 or more"));
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ReadTokenFile(const std::string& path, int32_t vocab_size) {
  LK_ASSIGN_OR_RETURN(const std::string content, ReadTextFile(path, kMaxTokenFileBytes));
  return ParseTokenIds(content, path, vocab_size);
}

}  // namespace lowkey

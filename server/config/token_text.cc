#include "server/config/token_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/config/flags.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {
namespace {

constexpr std::string_view kSeparators = " \t\r\n\v\f,";
// Longer words are cut in messages.
constexpr size_t kMaxQuotedBytes = 32;

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> owned(nullptr, &std::fclose);
  if (path != "-") owned.reset(std::fopen(path.c_str(), "rb"));
  std::FILE* file = path == "-" ? stdin : owned.get();
  if (file == nullptr) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  std::string content;
  auto chunk = std::make_unique<std::array<char, 65536>>();
  while (content.size() <= max_bytes) {
    const size_t n = std::fread(chunk->data(), 1, chunk->size(), file);
    if (n == 0) break;
    content.append(chunk->data(), n);
  }
  if (std::ferror(file) != 0) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  if (content.size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": over ", max_bytes, " bytes, expected at most that"));
  }
  return content;
}

absl::Status WriteTextFile(const std::string& path, const std::string& text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool is_written =
      file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (file != nullptr && std::fclose(file) == 0 && is_written) return absl::OkStatus();
  return CannotWrite(path);
}

absl::Status CheckWritable(const FlagValues& flags, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (!flags.IsGiven(name)) continue;
    const std::string path = flags.Text(name);
    std::FILE* file = std::fopen(path.c_str(), "ab");
    if (file == nullptr || std::fclose(file) != 0) return CannotWrite(path);
  }
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

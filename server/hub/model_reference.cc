#include "server/hub/model_reference.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr std::string_view kPrefix = "hf:";
constexpr size_t kMaxNamePartBytes = 96, kMaxRevisionBytes = 200;

// Letters, digits and - _ . without a dot at either end: never "." or "..", and nothing that a URL
// or a shell reads otherwise.
bool IsName(std::string_view text) {
  const auto is_plain = [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= kMaxNamePartBytes && text.front() != '.' &&
         text.back() != '.' && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), is_plain);
}

bool IsRevision(std::string_view text) {
  if (text.size() > kMaxRevisionBytes) return false;
  while (true) {
    const size_t slash = text.find('/');
    if (!IsName(text.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

// Cuts what follows the last `mark` off `text`, and returns whether there was one.
bool CutAt(char mark, std::string_view& text, std::string& after) {
  const size_t at = text.rfind(mark);
  if (at == std::string_view::npos) return false;
  after = std::string(text.substr(at + 1));
  text = text.substr(0, at);
  return true;
}

}  // namespace

std::string ModelReference::Text() const {
  return absl::StrCat(std::string(kPrefix), owner, "/", name, revision == "main" ? "" : "@",
                      revision == "main" ? "" : revision);
}

bool IsModelReference(std::string_view path) { return path.starts_with(kPrefix); }

bool IsCommit(std::string_view text) {
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 40 && std::all_of(text.begin(), text.end(), is_digit);
}

absl::StatusOr<ModelReference> ParseModelReference(std::string_view text) {
  ModelReference reference;
  std::string_view rest = text;
  bool is_right = IsModelReference(rest);
  if (is_right) rest.remove_prefix(kPrefix.size());
  if (CutAt(':', rest, reference.quant)) is_right = is_right && IsName(reference.quant);
  if (CutAt('@', rest, reference.revision)) is_right = is_right && IsRevision(reference.revision);
  is_right = CutAt('/', rest, reference.name) && is_right;
  reference.owner = std::string(rest);
  if (is_right && IsName(reference.owner) && IsName(reference.name)) return reference;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(text.substr(0, 400)),
                   "\", expected hf:OWNER/NAME[@REVISION][:QUANT], such as "
                   "hf:someone/some-model-GGUF:Q4_K_M"));
}

}  // namespace lowkey

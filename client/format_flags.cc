#include "client/format_flags.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"
#include "server/request/request.h"

namespace lowkey {
namespace {

constexpr Flag kFormatFlags[] = {
    {"json-object", "", "", "answer with a JSON object", FlagKind::kSwitch},
    {"json-schema", "FILE", "", "answer with JSON that the JSON Schema in FILE accepts"},
    {"regex", "REGEX", "", "answer with a text that REGEX matches as a whole"},
    {"choice", "TEXT,...", "", "answer with one of these texts"},
    {"grammar", "FILE", "", "answer with a text of the grammar in FILE"},
};

// The server takes less; a larger file is a mistake.
constexpr size_t kMaxFileBytes = size_t{1} << 20;

}  // namespace

absl::Span<const Flag> FormatFlags() { return kFormatFlags; }

absl::StatusOr<std::optional<ResponseFormat>> ReadFormat(const FlagValues& flags) {
  using Kind = ResponseFormat::Kind;
  constexpr std::pair<const char*, Kind> kKinds[] = {{"json-object", Kind::kJsonObject},
                                                     {"json-schema", Kind::kJsonSchema},
                                                     {"regex", Kind::kRegex},
                                                     {"choice", Kind::kChoice},
                                                     {"grammar", Kind::kGrammar}};
  std::optional<ResponseFormat> format;
  std::string given;
  for (const auto& [name, kind] : kKinds) {
    if (kind == Kind::kJsonObject ? !flags.Switch(name) : !flags.IsGiven(name)) continue;
    if (format.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", name, ": given beside --", given, ", expected one of them"));
    }
    given = name;
    format = ResponseFormat{.kind = kind};
    if (kind == Kind::kJsonSchema || kind == Kind::kGrammar) {
      LK_ASSIGN_OR_RETURN(format->text, ReadTextFile(flags.Text(name), kMaxFileBytes));
    } else if (kind == Kind::kRegex) {
      format->text = flags.Text(name);
    } else if (kind == Kind::kChoice) {
      format->choices = absl::StrSplit(flags.Text(name), ',');
      for (const std::string& choice : format->choices) {
        LK_RETURN_IF_ERROR(CheckUtf8("--choice", choice));
      }
    }
    LK_RETURN_IF_ERROR(CheckUtf8(absl::StrCat("--", name), format->text));
  }
  return format;
}

}  // namespace lowkey

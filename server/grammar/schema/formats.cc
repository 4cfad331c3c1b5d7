#include "server/grammar/schema/formats.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace lowkey::grammar {
namespace {

constexpr char kDate[] =
    "[12][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
    "02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr char kTime[] =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr char kHostname[] =
    "[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20})?(\\.[A-Za-z0-9]{1,20}(-[A-Za-z0-9]{1,20})?){0,3}"
    "\\.[A-Za-z]{2,10}";
constexpr char kByte[] = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";

}  // namespace

std::optional<std::string> PatternOfFormat(std::string_view name) {
  std::string pattern;
  if (name == "date") {
    pattern = kDate;
  } else if (name == "time") {
    pattern = kTime;
  } else if (name == "date-time") {
    pattern = absl::StrCat(kDate, "T", kTime);
  } else if (name == "duration") {
    pattern = "P([0-9]{1,4}[DW]|([0-9]{1,4}D)?T[0-9]{1,4}[HMS])";
  } else if (name == "email") {
    pattern = absl::StrCat("[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@", kHostname);
  } else if (name == "hostname") {
    pattern = kHostname;
  } else if (name == "ipv4") {
    pattern = absl::StrCat(kByte, "(\\.", kByte, "){3}");
  } else if (name == "ipv6") {
    pattern = "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}";
  } else if (name == "uri") {
    pattern = absl::StrCat("https?://", kHostname, "(/[A-Za-z0-9._~-]*)*");
  } else if (name == "uuid") {
    pattern = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
  } else {
    return std::nullopt;
  }
  return absl::StrCat("^(", pattern, ")$");
}

bool IsFormat(std::string_view name) {
  constexpr std::string_view kOthers[] = {
      "idn-email",    "idn-hostname", "iri",   "iri-reference",        "uri-reference",
      "uri-template", "json-pointer", "regex", "relative-json-pointer"};
  return PatternOfFormat(name).has_value() ||
         std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
}

}  // namespace lowkey::grammar

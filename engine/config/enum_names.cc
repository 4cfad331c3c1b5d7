#include "engine/config/enum_names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lowkey {

std::string ListNames(const EnumNames& names, int32_t last, std::string_view also) {
  const auto begin = names.names.begin();
  std::vector<std::string_view> listed(begin, begin + std::min(last + 1, names.size()));
  if (!also.empty()) listed.push_back(also);
  std::string text;
  for (size_t i = 0; i < listed.size(); ++i) {
    const char* separator = i == 0 ? "" : i + 1 < listed.size() ? ", " : " or ";
    absl::StrAppend(&text, separator, std::string(listed[i]));
  }
  return text;
}

absl::Status UnknownName(const EnumNames& names, std::string_view text, std::string_view also) {
  return absl::InvalidArgumentError(absl::StrCat("unknown ", std::string(names.what), " \"",
                                                 std::string(text), "\", expected ",
                                                 ListNames(names, EnumNames::kLast, also)));
}

std::string_view FindName(const EnumNames& names, int32_t value) {
  return value >= 0 && value < names.size() ? names.names[value] : std::string_view();
}

absl::StatusOr<int32_t> FindValue(const EnumNames& names, std::string_view text) {
  for (int32_t value = 0; value < names.size(); ++value) {
    if (text == names.names[value]) return value;
  }
  if (!text.empty() && text == names.alias_of_first) return 0;
  return UnknownName(names, text);
}

}  // namespace lowkey

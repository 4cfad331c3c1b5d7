#include "server/http/exchange.h"

namespace lowkey {

std::vector<std::string_view> HttpHead::All(std::string_view name) const {
  std::vector<std::string_view> values;
  for (const HttpField& field : fields) {
    if (field.name == name) values.push_back(field.value);
  }
  return values;
}

std::optional<std::string_view> HttpHead::One(std::string_view name) const {
  std::optional<std::string_view> value;
  for (const HttpField& field : fields) {
    if (field.name != name) continue;
    if (value.has_value()) return std::nullopt;
    value = field.value;
  }
  return value;
}

}  // namespace lowkey

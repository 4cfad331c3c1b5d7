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
  const std::vector<std::string_view> values = All(name);
  if (values.size() != 1) return std::nullopt;
  return values[0];
}

}  // namespace lowkey

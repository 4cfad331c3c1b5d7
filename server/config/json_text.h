#ifndef LOWKEY_SERVER_CONFIG_JSON_TEXT_H_
#define LOWKEY_SERVER_CONFIG_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

namespace lowkey {

// Returns one line of JSON. Bytes that are not UTF-8 become U+FFFD.
inline std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// Returns `text` as a quoted JSON string.
inline std::string JsonString(const std::string& text) {
  return JsonLine(nlohmann::ordered_json(text));
}

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_JSON_TEXT_H_

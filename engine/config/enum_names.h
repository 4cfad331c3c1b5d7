#ifndef LOWKEY_ENGINE_CONFIG_ENUM_NAMES_H_
#define LOWKEY_ENGINE_CONFIG_ENUM_NAMES_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

// The names of an enum whose values are 0, 1, ...: names[value]. Both directions read this table.
// An enum has at most eight; a ninth needs a longer array and a larger kLast.
struct EnumNames {
  std::string_view what;                       // the enum, as errors call it: "atp basis"
  std::array<std::string_view, 8> names = {};  // empty ones are no names
  std::string_view alias_of_first = {};        // read like names[0] and never written
  static constexpr int32_t kLast = 7;

  constexpr int32_t size() const {
    int32_t n = 0;
    while (n <= kLast && !names[n].empty()) ++n;
    return n;
  }
};

// Specialized beside every enum that has names.
template <typename E>
inline constexpr EnumNames kEnumNames = {};

// "layer, kv or input": the names of the values up to `last`, then `also` unless it is empty.
std::string ListNames(const EnumNames& names, int32_t last = EnumNames::kLast,
                      std::string_view also = {});

// INVALID_ARGUMENT: `unknown atp basis "x", expected layer, kv or input`.
absl::Status UnknownName(const EnumNames& names, std::string_view text, std::string_view also = {});

// Empty for a value without a name.
std::string_view FindName(const EnumNames& names, int32_t value);
// UnknownName unless `text` is a name or the alias.
absl::StatusOr<int32_t> FindValue(const EnumNames& names, std::string_view text);

template <typename E>
std::string_view NameOf(E value) {
  return FindName(kEnumNames<E>, static_cast<int32_t>(value));
}

template <typename E>
absl::StatusOr<E> ParseName(std::string_view text) {
  const absl::StatusOr<int32_t> value = FindValue(kEnumNames<E>, text);
  if (!value.ok()) return value.status();
  return static_cast<E>(*value);
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_ENUM_NAMES_H_

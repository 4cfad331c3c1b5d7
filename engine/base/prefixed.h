#ifndef LOWKEY_ENGINE_BASE_PREFIXED_H_
#define LOWKEY_ENGINE_BASE_PREFIXED_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace lowkey {

// Returns the status or result; an error's message gets "prefix: " before it.
inline absl::Status Prefixed(const std::string& prefix, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}
template <typename T>
absl::StatusOr<T> Prefixed(const std::string& prefix, absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return Prefixed(prefix, result.status());
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_PREFIXED_H_

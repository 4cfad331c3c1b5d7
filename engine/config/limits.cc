#include "engine/config/limits.h"

#include "absl/strings/str_cat.h"

namespace lowkey {

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, ", expected ", min, "..", max));
}

}  // namespace lowkey

#include "engine/base/retry_after.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {
constexpr char kPayload[] = "lowkey/retry-after-ms";
}  // namespace

absl::Status WithRetryAfter(absl::Status status, absl::Duration delay) {
  const int64_t ms = std::max<int64_t>(1, absl::ToInt64Milliseconds(delay));
  status.SetPayload(kPayload, absl::Cord(absl::StrCat(ms)));
  return status;
}

std::optional<absl::Duration> RetryAfterOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayload);
  int64_t ms = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &ms)) return std::nullopt;
  return absl::Milliseconds(ms);
}

}  // namespace lowkey

#ifndef LOWKEY_TESTS_TOKENIZER_STATUS_MATCHERS_H_
#define LOWKEY_TESTS_TOKENIZER_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

// A Status or StatusOr with this code, whose message holds `text`.
MATCHER_P2(FailsWith, code, text, "") {
  const absl::Status& status = GetStatus(arg);
  *result_listener << "whose status is " << status;
  return status.code() == code && std::string(status.message()).find(text) != std::string::npos;
}

MATCHER_P(IsInvalid, text, "") {
  return testing::ExplainMatchResult(FailsWith(absl::StatusCode::kInvalidArgument, text), arg,
                                     result_listener);
}

MATCHER(IsOk, "") {
  *result_listener << "whose status is " << GetStatus(arg);
  return GetStatus(arg).ok();
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TOKENIZER_STATUS_MATCHERS_H_

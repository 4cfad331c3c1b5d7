#ifndef LOWKEY_ENGINE_BASE_RETRY_AFTER_H_
#define LOWKEY_ENGINE_BASE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lowkey {

// A refusal that is worth another try says when: the delay travels with the status, and protocols
// send it in their own form (gRPC: google.rpc.RetryInfo). Kept in milliseconds, at least one.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);

// The delay that WithRetryAfter added; nullopt when there is none.
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_RETRY_AFTER_H_

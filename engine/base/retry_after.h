#ifndef LOWKEY_ENGINE_BASE_RETRY_AFTER_H_
#define LOWKEY_ENGINE_BASE_RETRY_AFTER_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace lowkey {

// Adds to a refusal the delay after which another try is worth it. Protocols send the delay in
// their own form (gRPC: google.rpc.RetryInfo). The status keeps whole milliseconds, at least one.
absl::Status WithRetryAfter(absl::Status status, absl::Duration delay);

// Returns the delay that WithRetryAfter added; nullopt when there is none.
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_RETRY_AFTER_H_

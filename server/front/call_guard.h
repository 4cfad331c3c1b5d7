#ifndef LOWKEY_SERVER_FRONT_CALL_GUARD_H_
#define LOWKEY_SERVER_FRONT_CALL_GUARD_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/auth/credentials.h"
#include "server/auth/token_table.h"
#include "server/request/tenant.h"

namespace lowkey {

// Returns the right that a caller of a method ("/lowkey.v1.Generation/Score") or page ("/metrics")
// needs. Nullopt: none, for grpc.health.v1, ServerLive and ServerReady, `/`, /health, /ready and
// /version alone. An unlisted one needs kAdmin.
std::optional<Right> RightFor(std::string_view method);

// Decides which caller may call which method. Thread-safe.
class CallGuard {
 public:
  // Null: everyone may call every method, as the tenant without a name.
  explicit CallGuard(std::shared_ptr<TokenSource> tokens) : tokens_(std::move(tokens)) {}

  bool asks_for_tokens() const { return tokens_ != nullptr; }

  // `authorization`: the values of the call's header of that name. UNAUTHENTICATED unless there is
  // one value, "Bearer " and a known token; PERMISSION_DENIED if the token lacks the right.
  // `bearer`, if not null, receives the name of a known token's tenant, whatever its rights.
  absl::StatusOr<Tenant> Check(Right right, absl::Span<const std::string_view> authorization,
                               std::string* bearer = nullptr) const;

 private:
  const std::shared_ptr<TokenSource> tokens_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_CALL_GUARD_H_

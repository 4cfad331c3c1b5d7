#include "server/text/live_requests.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/retry_after.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// Nobody knows when one of a tenant's requests will end.
constexpr absl::Duration kRetryAfterOneEnds = absl::Seconds(1);

}  // namespace

LiveRequests::Claim::Claim(std::shared_ptr<LiveRequests> owner, Tenant tenant, std::string id)
    : owner_(std::move(owner)), tenant_(std::move(tenant)), id_(std::move(id)) {}

void LiveRequests::Charge(const Tenant& tenant, int64_t n_tokens) {
  absl::MutexLock lock(&mutex_);
  Account& account = accounts_[tenant.name];
  if (account.tokens_left.has_value()) *account.tokens_left -= static_cast<double>(n_tokens);
}

void LiveRequests::Claim::Release() {
  if (owner_ == nullptr) return;
  {
    absl::MutexLock lock(&owner_->mutex_);
    owner_->accounts_[tenant_.name].ids.erase(id_);
  }
  owner_.reset();
}

absl::Status LiveRequests::CheckLive(const Tenant& tenant, const Account& account) const {
  const auto n_live = static_cast<int64_t>(account.ids.size());
  if (!tenant.max_live_requests.has_value() || n_live < *tenant.max_live_requests) {
    return absl::OkStatus();
  }
  return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                            "quota: ", n_live, " live requests of tenant ", tenant.name,
                            ", expected at most ", *tenant.max_live_requests, " at a time")),
                        kRetryAfterOneEnds);
}

absl::Status LiveRequests::CheckTokens(const Tenant& tenant, Account& account) {
  if (!tenant.tokens_per_minute.has_value()) return absl::OkStatus();
  const double per_minute = static_cast<double>(*tenant.tokens_per_minute);
  const absl::Time now = clock_();
  double& left = account.tokens_left.has_value() ? *account.tokens_left
                                                 : account.tokens_left.emplace(per_minute);
  if (now > account.counted) {
    const double minutes = absl::FDivDuration(now - account.counted, absl::Minutes(1));
    left = std::min(per_minute, left + per_minute * std::min(minutes, 1e9));
    account.counted = now;
  }
  if (left >= 1) return absl::OkStatus();
  return WithRetryAfter(
      absl::ResourceExhaustedError(absl::StrCat("quota: tenant ", tenant.name, " has used its ",
                                                *tenant.tokens_per_minute, " tokens per minute")),
      absl::Ceil(absl::Minutes((1 - left) / per_minute), absl::Milliseconds(1)));
}

absl::StatusOr<std::unique_ptr<LiveRequests::Claim>> LiveRequests::Take(const Tenant& tenant,
                                                                        const std::string& id,
                                                                        bool is_begun) {
  auto claim = std::make_unique<Claim>(nullptr, tenant, id);
  {
    absl::MutexLock lock(&mutex_);
    Account& account = accounts_[tenant.name];
    if (account.ids.contains(id)) {
      return absl::AlreadyExistsError(
          absl::StrCat("request_id: \"", id, "\" is still running, expected an id not in use"));
    }
    LK_RETURN_IF_ERROR(CheckLive(tenant, account));
    if (!is_begun) LK_RETURN_IF_ERROR(CheckTokens(tenant, account));
    account.ids.insert(id);
  }
  claim->owner_ = shared_from_this();  // from here on the claim gives the id back
  return claim;
}

}  // namespace lowkey

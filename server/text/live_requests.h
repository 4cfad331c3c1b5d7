#ifndef LOWKEY_SERVER_TEXT_LIVE_REQUESTS_H_
#define LOWKEY_SERVER_TEXT_LIVE_REQUESTS_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/clock.h"
#include "server/request/tenant.h"

namespace lowkey {

// The live requests of each tenant: their ids, and the tokens that count against the tenant's
// quota. Tenants know nothing of each other. Thread-safe.
//
// A tenant may have max_live_requests requests, and begin one while tokens of its tokens_per_minute
// are left. Tokens come back evenly, up to a minute's worth. A prompt is charged at admission and
// the output at the end, so running requests may overdraw the quota; the next ones wait that out.
class LiveRequests : public std::enable_shared_from_this<LiveRequests> {
 public:
  // A request's id, taken until Release or destruction, whichever is first.
  class Claim {
   public:
    Claim(std::shared_ptr<LiveRequests> owner, Tenant tenant, std::string id);
    ~Claim() { Release(); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

    // Takes tokens off the tenant's quota. Must not be called after Release.
    void Charge(int64_t n_tokens) { owner_->Charge(tenant_, n_tokens); }
    void Release();
    const std::string& id() const { return id_; }

   private:
    friend class LiveRequests;

    std::shared_ptr<LiveRequests> owner_;  // null: nothing is claimed
    const Tenant tenant_;
    const std::string id_;
  };

  explicit LiveRequests(std::function<absl::Time()> clock = &SteadyNow)
      : clock_(std::move(clock)) {}

  // ALREADY_EXISTS while another claim of the tenant's with this id lives; RESOURCE_EXHAUSTED, with
  // RetryAfterOf, past the tenant's quota. The object must be in a shared_ptr.
  // `is_begun`: the claim belongs to a call that the tokens per minute let begin.
  absl::StatusOr<std::unique_ptr<Claim>> Take(const Tenant& tenant, const std::string& id,
                                              bool is_begun = false);

  // Takes tokens off the tenant's quota; a negative number gives them back.
  void Charge(const Tenant& tenant, int64_t n_tokens);

 private:
  struct Account {
    std::set<std::string> ids = {};
    std::optional<double> tokens_left = {};  // absent: the tenant was never limited
    absl::Time counted = absl::InfinitePast();
  };

  absl::Status CheckLive(const Tenant& tenant, const Account& account) const;
  absl::Status CheckTokens(const Tenant& tenant, Account& account)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<absl::Time()> clock_;
  absl::Mutex mutex_;
  // Abseil's tables break when there is no memory for an entry.
  std::map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);  // by tenant
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TEXT_LIVE_REQUESTS_H_

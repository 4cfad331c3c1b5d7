#include "server/live_requests.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace lowkey {

LiveRequests::Claim::Claim(std::shared_ptr<LiveRequests> owner, std::string id)
    : owner_(std::move(owner)), id_(std::move(id)) {}

void LiveRequests::Claim::Release() {
  if (owner_ == nullptr) return;
  {
    absl::MutexLock lock(&owner_->mutex_);
    owner_->ids_.erase(id_);
  }
  owner_.reset();
}

absl::StatusOr<std::unique_ptr<LiveRequests::Claim>> LiveRequests::Take(const std::string& id) {
  {
    absl::MutexLock lock(&mutex_);
    if (!ids_.insert(id).second) {
      return absl::AlreadyExistsError(
          absl::StrCat("request_id: \"", id, "\" is still running, expected an id not in use"));
    }
  }
  return std::make_unique<Claim>(shared_from_this(), id);
}

}  // namespace lowkey

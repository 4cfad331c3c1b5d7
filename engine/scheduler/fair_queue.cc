#include "engine/scheduler/fair_queue.h"

#include <algorithm>

namespace lowkey {

int64_t FairQueue::Push(const Waiting& request) {
  const int64_t place = n_pushed_++ - kOvertakes * request.priority;
  PushAt(request, place);
  return place;
}

void FairQueue::PushAt(const Waiting& request, int64_t place) {
  Tenant& tenant = tenants_[request.tenant];
  tenant.weight = request.weight;
  if (tenant.line.empty()) {
    // Credit from idling is lost: no tenant may then keep the others out.
    std::optional<double> least;
    for (const auto& [name, other] : tenants_) {
      if (!other.line.empty()) least = std::min(least.value_or(other.served), other.served);
    }
    tenant.served = std::max(tenant.served, least.value_or(tenant.served));
  }
  tenant.line.insert({place, request.id});
  places_[request.id] = {request.tenant, place};
}

void FairQueue::Remove(uint64_t id) {
  const auto found = places_.find(id);
  if (found == places_.end()) return;
  const auto& [tenant, place] = found->second;
  tenants_.at(tenant).line.erase({place, id});
  places_.erase(found);
}

std::optional<uint64_t> FairQueue::Front() const {
  const Tenant* next = nullptr;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.line.empty()) continue;
    const auto key = [](const Tenant& t) { return std::pair(t.served, *t.line.begin()); };
    if (next == nullptr || key(tenant) < key(*next)) next = &tenant;
  }
  if (next == nullptr) return std::nullopt;
  return next->line.begin()->second;
}

void FairQueue::Charge(const std::string& tenant, int64_t n_rows) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return;
  found->second.served += static_cast<double>(n_rows) / found->second.weight;
}

}  // namespace lowkey

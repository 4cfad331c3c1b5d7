#include "engine/scheduler/fair_queue.h"

#include <algorithm>
#include <vector>

namespace lowkey {

int64_t FairQueue::Push(const Waiting& request) {
  const int64_t place = PlaceOf(request);
  ++n_pushed_;
  PushAt(request, place);
  return place;
}

double FairQueue::ServedWithoutCredit(double served) const {
  std::optional<double> least;
  for (const auto& [name, other] : tenants_) {
    if (!other.line.empty()) least = std::min(least.value_or(other.served), other.served);
  }
  return std::max(served, least.value_or(served));
}

void FairQueue::PushAt(const Waiting& request, int64_t place) {
  Tenant& tenant = tenants_[request.tenant];
  tenant.weight = request.weight;
  if (tenant.line.empty()) tenant.served = ServedWithoutCredit(tenant.served);
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

void FairQueue::VisitAhead(const Waiting& request,
                           absl::FunctionRef<int64_t(uint64_t id)> visit) const {
  struct Turns {
    double weight, served;
    Line::const_iterator next, end;
  };
  std::vector<Turns> lines;
  const std::pair own_turn(PlaceOf(request), request.id);
  Turns own{request.weight, 0, {}, {}};
  bool is_waiting = false;  // whether the request's tenant has others that wait
  for (const auto& [name, tenant] : tenants_) {
    if (name == request.tenant) own.served = tenant.served;
    if (tenant.line.empty()) continue;
    Turns turns{tenant.weight, tenant.served, tenant.line.begin(), tenant.line.end()};
    if (name == request.tenant) {
      turns.weight = request.weight;
      own = turns;
      is_waiting = true;
    } else {
      lines.push_back(turns);
    }
  }
  if (!is_waiting) own.served = ServedWithoutCredit(own.served);
  for (;;) {
    const bool is_own_turn = !is_waiting || own.next == own.end || own_turn < *own.next;
    std::pair first(own.served, is_own_turn ? own_turn : *own.next);
    Turns* turns = &own;
    for (Turns& other : lines) {
      if (other.next == other.end) continue;
      const std::pair key(other.served, *other.next);
      if (key >= first) continue;
      first = key;
      turns = &other;
    }
    if (turns == &own && is_own_turn) return;
    turns->served += static_cast<double>(visit(turns->next->second)) / turns->weight;
    ++turns->next;
  }
}

void FairQueue::Charge(const std::string& tenant, int64_t n_rows) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return;
  found->second.served += static_cast<double>(n_rows) / found->second.weight;
}

}  // namespace lowkey

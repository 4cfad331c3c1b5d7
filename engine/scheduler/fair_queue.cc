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
  if (!least.has_value() && last_.has_value()) least = tenants_.at(*last_).served;
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
  Line& line = tenants_.at(tenant).line;
  line.erase({place, id});
  if (line.empty()) last_ = tenant;
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
  static const Line kNobody;
  const std::pair own_turn(PlaceOf(request), request.id);
  // The request's own tenant comes first; its turn follows those before it in its line.
  std::vector<Turns> lines = {
      {request.weight, ServedWithoutCredit(0), kNobody.begin(), kNobody.end()}};
  for (const auto& [name, tenant] : tenants_) {
    const Line& line = tenant.line;
    if (name == request.tenant) {
      const double served = line.empty() ? ServedWithoutCredit(tenant.served) : tenant.served;
      lines[0] = {request.weight, served, line.begin(), line.lower_bound(own_turn)};
    } else if (!line.empty()) {
      lines.push_back({tenant.weight, tenant.served, line.begin(), line.end()});
    }
  }
  for (;;) {
    const auto key = [&](const Turns& turns) {
      return std::pair(turns.served, turns.next == turns.end ? own_turn : *turns.next);
    };
    Turns* first = &lines[0];
    for (Turns& turns : lines) {
      if (turns.next != turns.end && key(turns) < key(*first)) first = &turns;
    }
    if (first->next == first->end) return;
    first->served += static_cast<double>(visit(first->next->second)) / first->weight;
    ++first->next;
  }
}

void FairQueue::Charge(const std::string& tenant, int64_t n_rows) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return;
  found->second.served += static_cast<double>(n_rows) / found->second.weight;
}

}  // namespace lowkey

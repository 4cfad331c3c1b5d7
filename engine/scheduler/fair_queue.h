#ifndef LOWKEY_ENGINE_SCHEDULER_FAIR_QUEUE_H_
#define LOWKEY_ENGINE_SCHEDULER_FAIR_QUEUE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"

namespace lowkey {

// Decides whose turn it is. Tenants that wait share the work by weight: each has a counter of the
// rows computed for it, divided by its weight, and the tenant with the least goes first ("Fairness
// in Serving Large Language Models", arXiv 2401.00588, Algorithm 2). A tenant that comes back from
// idling does not get what it left unused. Within a tenant, requests go in order of arrival, but a
// request overtakes at most kOvertakes earlier ones per step of priority: nobody waits for ever.
// Plain data.
class FairQueue {
 public:
  static constexpr int64_t kOvertakes = 32;

  struct Waiting {
    uint64_t id = 0;     // unique among the waiting
    std::string tenant;  // has the weight of its latest request
    double weight = 1;   // > 0
    int32_t priority = 0;
  };

  // Takes a new place in the tenant's line and returns it.
  int64_t Push(const Waiting& request);
  // Takes a place that Push returned.
  void PushAt(const Waiting& request, int64_t place);

  // Unknown ids are ignored.
  void Remove(uint64_t id);

  // Returns the id whose turn it is.
  std::optional<uint64_t> Front() const;

  // Calls `visit` for the requests whose turns would come before a new one's, in their order, as if
  // each were charged the rows that `visit` returns.
  void VisitAhead(const Waiting& request, absl::FunctionRef<int64_t(uint64_t id)> visit) const;

  // Counts rows that were or will be computed for the tenant.
  void Charge(const std::string& tenant, int64_t n_rows);

  int64_t size() const { return static_cast<int64_t>(places_.size()); }

 private:
  using Line = std::set<std::pair<int64_t, uint64_t>>;  // place, id
  struct Tenant {
    double weight = 1;
    double served = 0;  // rows over weight
    Line line;
  };

  int64_t PlaceOf(const Waiting& request) const {
    return n_pushed_ - kOvertakes * request.priority;
  }
  // Returns what a tenant that begins to wait has been served: credit from idling is lost, as no
  // tenant may then keep the others out. It has been served as much as the one that waits and has
  // been served least, or, where nobody waits, as the one that waited last.
  double ServedWithoutCredit(double served) const;

  std::map<std::string, Tenant> tenants_;
  std::map<uint64_t, std::pair<std::string, int64_t>> places_;  // by id: tenant, place
  std::optional<std::string> last_;  // the tenant whose line became empty last
  int64_t n_pushed_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SCHEDULER_FAIR_QUEUE_H_

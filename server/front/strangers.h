#ifndef LOWKEY_SERVER_FRONT_STRANGERS_H_
#define LOWKEY_SERVER_FRONT_STRANGERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace lowkey {

// The connections that never showed valid credentials, by number, in the order of their acceptance.
// Every method takes logarithmic time.
class Strangers {
 public:
  // `network` is Peer::network, and not empty.
  void Add(uint64_t id, const std::string& network) {
    by_network_[kAll].insert(id);
    by_network_[network].insert(id);
  }

  // Does nothing for a connection that is not among them. Takes no memory.
  void Remove(uint64_t id, const std::string& network) noexcept {
    for (const std::string* group : {&kAll, &network}) {
      const auto found = by_network_.find(*group);
      if (found == by_network_.end()) continue;
      found->second.erase(id);
      if (found->second.empty()) by_network_.erase(found);
    }
  }

  std::optional<uint64_t> Oldest() const { return OldestOf(kAll); }
  std::optional<uint64_t> OldestOf(const std::string& network) const {
    const auto found = by_network_.find(network);
    if (found == by_network_.end()) return std::nullopt;
    return *found->second.begin();
  }

 private:
  static inline const std::string kAll;

  std::map<std::string, std::set<uint64_t>> by_network_;  // and all, by the empty name
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_STRANGERS_H_

#include "server/net/peer_table.h"

namespace lowkey {

std::optional<NetworkRefusal> PeerTable::Add(const std::string& network) {
  absl::MutexLock lock(&mutex_);
  if (n_connections_ >= max_connections_) return NetworkRefusal::kConnections;
  const auto found = by_network_.find(network);
  if (found != by_network_.end() && found->second >= max_per_network_) {
    return NetworkRefusal::kPeerConnections;
  }
  ++by_network_[network];  // may throw, and changes nothing then
  ++n_connections_;
  return std::nullopt;
}

void PeerTable::Remove(const std::string& network) noexcept {
  absl::MutexLock lock(&mutex_);
  --n_connections_;
  const auto found = by_network_.find(network);
  if (--found->second == 0) by_network_.erase(found);
}

}  // namespace lowkey

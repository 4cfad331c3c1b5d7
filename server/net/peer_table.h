#ifndef LOWKEY_SERVER_NET_PEER_TABLE_H_
#define LOWKEY_SERVER_NET_PEER_TABLE_H_

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "server/net/refusals.h"

namespace lowkey {

// Counts connections, in all and by network (Peer::network). Thread-safe.
class PeerTable {
 public:
  PeerTable(int max_connections, int max_per_network)
      : max_connections_(max_connections), max_per_network_(max_per_network) {}

  // Counts a connection, or says which bound it would pass.
  std::optional<NetworkRefusal> Add(const std::string& network);
  void Remove(const std::string& network);

 private:
  const int max_connections_, max_per_network_;
  absl::Mutex mutex_;
  int n_connections_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, int> by_network_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_PEER_TABLE_H_

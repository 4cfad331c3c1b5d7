#ifndef LOWKEY_SERVER_NET_PEER_TABLE_H_
#define LOWKEY_SERVER_NET_PEER_TABLE_H_

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
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
  void Remove(const std::string& network) noexcept;

 private:
  const int max_connections_, max_per_network_;
  absl::Mutex mutex_;
  int n_connections_ ABSL_GUARDED_BY(mutex_) = 0;
  // Abseil's tables break when there is no memory for an entry.
  std::map<std::string, int> by_network_ ABSL_GUARDED_BY(mutex_);
};

// A connection's place in a PeerTable, which must outlive it.
class PeerSeat {
 public:
  PeerSeat() = default;
  PeerSeat(PeerSeat&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)), network_(std::move(other.network_)) {}
  PeerSeat& operator=(PeerSeat&& other) noexcept {
    std::swap(table_, other.table_);
    network_.swap(other.network_);
    return *this;
  }
  ~PeerSeat() { Leave(); }

  // Counts a connection, or says which bound it would pass. The seat must be empty.
  std::optional<NetworkRefusal> Take(PeerTable& table, const std::string& network) {
    network_ = network;
    const std::optional<NetworkRefusal> bound = table.Add(network);
    if (!bound.has_value()) table_ = &table;
    return bound;
  }
  void Leave() noexcept {
    if (table_ != nullptr) std::exchange(table_, nullptr)->Remove(network_);
  }

 private:
  PeerTable* table_ = nullptr;  // null: the seat is empty
  std::string network_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_PEER_TABLE_H_

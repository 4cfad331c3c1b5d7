#ifndef LOWKEY_SERVER_FRONT_FRONT_H_
#define LOWKEY_SERVER_FRONT_FRONT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/auth/credentials.h"
#include "server/front/connection.h"
#include "server/metrics/network_stats.h"
#include "server/net/event_loop.h"
#include "server/net/listener.h"
#include "server/net/peer_table.h"

namespace lowkey {

class Connection;

struct FrontOptions {
  std::string host = "127.0.0.1";
  int port = 0;                      // 0: a free port
  std::shared_ptr<TlsSource> tls;    // null: connections are in clear
  int n_loops = 1;                   // threads that serve connections
  int max_connections = 1024;        // in all; the limit of descriptors may leave room for fewer
  int max_connections_per_peer = 0;  // 0: half of them all
  ConnectionLimits limits;
  OnRefusal on_refusal;  // called on the loops' threads
  // Called on the loops' threads ten times a second, with how late the loop's timer was. Null:
  // none.
  std::function<void(absl::Duration)> on_loop_delay = nullptr;
};

// Listens on one port and serves its connections on a few event loops.
class Front {
 public:
  // `router` must outlive the front, and `budgets` what its handlers hold too. Errors are those of
  // EventLoop::Start and Listener::Start, and INVALID_ARGUMENT for certificates that OpenSSL
  // refuses.
  static absl::StatusOr<std::unique_ptr<Front>> Start(const Router& router, HttpBudgets& budgets,
                                                      const FrontOptions& options);

  ~Front();  // Close, then ends the loops
  Front(const Front&) = delete;
  Front& operator=(const Front&) = delete;

  int port() const { return port_; }
  // Returns whether connections are accepted at this time. Thread-safe until Close.
  bool can_accept() const { return listener_->can_accept(); }
  // Waits until every loop has done what was posted to it.
  void PassLoops();
  EventLoop& first_loop();

  // Returns what the connections do; all but n_waiting_work is set. Thread-safe.
  NetworkStats Stats() const;

  // Tells the clients of the present connections to go elsewhere. Thread-safe.
  void BeginDrain();

  // Closes the port; the connections that were accepted go on. Not on a loop's thread.
  void StopAccepting();

  // Closes the port and every connection; the loops go on. Not on a loop's thread.
  void Close();

  // Waits until the clients that BeginDrain told of know it; at most until `deadline`. Returns
  // whether so. Not on a loop's thread.
  bool AwaitTold(absl::Time deadline);

  // Waits until no connection has an exchange and, after BeginDrain, all clients have been told; at
  // most until `deadline`. Returns whether so. Not on a loop's thread.
  bool AwaitIdle(absl::Time deadline);

 private:
  // Shard holds what belongs to one loop.
  struct Shard;

  Front(const Router& router, HttpBudgets& budgets, const FrontOptions& options);

  absl::Status StartLoops();
  bool AwaitAll(bool (Connection::*is_so)() const, absl::Time deadline);
  void Accept(OwnedSocket socket, const Peer& peer);
  void Open(Shard& shard, OwnedSocket socket, const std::shared_ptr<const TlsContext>& tls,
            const Peer& peer);

  const Router& router_;
  const FrontOptions options_;
  PeerTable peers_;
  HttpBudgets& budgets_;
  TlsContexts tls_;  // belongs to the first loop, which accepts
  std::vector<std::unique_ptr<Shard>> shards_;
  size_t next_shard_ = 0;  // belongs to the first loop
  std::unique_ptr<Listener> listener_;
  int port_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_FRONT_H_

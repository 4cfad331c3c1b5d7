#ifndef LOWKEY_SERVER_NET_LISTENER_H_
#define LOWKEY_SERVER_NET_LISTENER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/net/event_loop.h"
#include "server/net/owned_socket.h"
#include "server/net/peer.h"
#include "server/net/refusals.h"

namespace lowkey {

// Accepts connections on a port. It survives a lack of file descriptors: a descriptor that it
// keeps in reserve lets it accept and end one connection, so that nobody waits unanswered, and it
// goes on when descriptors are free again.
class Listener {
 public:
  // A connected socket, set up for a server: no delay, keepalive, a bound on what the kernel holds
  // for a reader that has stopped.
  using OnAccept = std::function<void(OwnedSocket socket, Peer peer)>;

  // Binds, listens and accepts on the loop's thread, where `on_accept` is called. Port 0 picks.
  // Errors are those of ListenAt.
  static absl::StatusOr<std::unique_ptr<Listener>> Start(EventLoop& loop, const std::string& host,
                                                         int port, OnAccept on_accept,
                                                         OnRefusal on_refusal);

  virtual ~Listener() = default;  // closes the port; not on the loop's thread

  // Closes the port; again has no effect. Not on the loop's thread.
  virtual void Close() = 0;

  virtual int port() const = 0;

  // Returns false if the last try to accept failed for a lack of descriptors or memory.
  // Thread-safe.
  virtual bool can_accept() const = 0;
};

// The most connections that the process's limit of descriptors leaves room for, at most `wanted`:
// 64 descriptors stay free for files.
int ConnectionsWithinLimits(int wanted);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_LISTENER_H_

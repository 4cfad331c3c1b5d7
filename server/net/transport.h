#ifndef LOWKEY_SERVER_NET_TRANSPORT_H_
#define LOWKEY_SERVER_NET_TRANSPORT_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/net/event_loop.h"
#include "server/net/owned_socket.h"
#include "server/net/tls_context.h"

namespace lowkey {

enum class IoState {
  kDone,     // n_bytes were moved, at least one
  kWait,     // nothing can be moved now; Wait tells when to try again
  kEnd,      // the other end has sent all it will send
  kFailure,  // the connection is broken
};

struct IoResult {
  IoState state = IoState::kWait;
  size_t n_bytes = 0;
};

// A connected socket that never blocks, in clear or under TLS. It belongs to a loop's thread.
class Transport {
 public:
  virtual ~Transport() = default;  // closes the socket; Wait's callback is not called any more

  // Agrees on TLS; kDone at once in clear. After kWait call it again. kFailure: no agreement.
  virtual IoState Handshake() = 0;

  // Returns what ALPN agreed on, "h2" or "http/1.1"; empty in clear or without ALPN.
  virtual std::string_view protocol() const = 0;

  virtual bool is_encrypted() const = 0;

  // Neither takes an empty range. After a kWait the next Write must begin with the same bytes, as
  // TLS may have encrypted them already. TLS that ends without close_notify is a kFailure.
  virtual IoResult Read(char* data, size_t n_bytes) = 0;
  virtual IoResult Write(std::string_view bytes) = 0;

  // Says that nothing more will be written (close_notify, FIN), once the last Write was kDone;
  // reading goes on.
  virtual void CloseWriting() = 0;

  // Makes the destructor send RST instead of what waits in the socket.
  virtual void Abort() = 0;

  // Calls `ready` once, on the loop's thread and not within Wait, when reading or writing (those
  // that are asked for) may succeed. Under TLS it waits for whatever the last kWait needs. A
  // second call replaces what the first one waits for.
  virtual void Wait(bool for_reading, bool for_writing, std::function<void()> ready) = 0;
};

// Makes a transport of a connected, non-blocking socket. A null context means in clear.
std::unique_ptr<Transport> MakeTransport(EventLoop& loop, OwnedSocket socket,
                                         const std::shared_ptr<const TlsContext>& tls);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_TRANSPORT_H_

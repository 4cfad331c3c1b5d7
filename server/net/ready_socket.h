#ifndef LOWKEY_SERVER_NET_READY_SOCKET_H_
#define LOWKEY_SERVER_NET_READY_SOCKET_H_

#include <functional>
#include <memory>

#include "server/net/event_loop.h"
#include "server/net/owned_socket.h"
#include "server/net/reactor.h"

namespace lowkey {

// A transport's socket and the waits for it. It belongs to the loop's thread; no callback is called
// after its end, which closes the socket, and it may end within a callback.
class ReadySocket {
 public:
  ReadySocket(EventLoop& loop, OwnedSocket socket);
  ~ReadySocket();
  ReadySocket(const ReadySocket&) = delete;
  ReadySocket& operator=(const ReadySocket&) = delete;

  // -1 if the system had no room for one more descriptor to wait for.
  int descriptor() { return descriptor_.is_open() ? descriptor_.native_handle() : -1; }

  struct WaitFor {
    bool readable = false, writable = false;
    bool nothing = false;  // calls back at once, though not within Wait
  };
  // Calls `ready` once, as soon as one of what it waits for is there. Replaces the call before.
  void Wait(WaitFor what, std::function<void()> ready);

  // As Wait, for the transport's own use: neither replaces the other.
  void WaitToClose(std::function<void()> writable);

  // Makes the end send RST.
  void Abort();

 private:
  struct Waits;

  void AwaitReadable();
  void AwaitWritable();
  void AwaitNothing();

  boost::asio::io_context& context_;
  boost::asio::posix::stream_descriptor descriptor_;
  // Shared with the callbacks that Asio still owes after this object's end.
  const std::shared_ptr<Waits> waits_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_READY_SOCKET_H_

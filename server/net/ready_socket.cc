#include "server/net/ready_socket.h"

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <utility>

#include "engine/base/contained.h"
#include "engine/base/threads/short_work.h"

namespace lowkey {

using boost::asio::posix::descriptor_base;
using boost::system::error_code;

// A wait that Asio owes is not asked for again: Asio looks at the socket when the wait begins, and
// whatever happens to the socket later ends it.
struct ReadySocket::Waits {
  void OnReadable() {
    owed.readable = false;
    if (asked.readable) CallReady();
  }

  void OnWritable() {
    owed.writable = false;
    if (to_close) RunContained(std::exchange(to_close, nullptr));
    if (asked.writable) CallReady();
  }

  void OnNothing() {
    owed.nothing = false;
    if (asked.nothing) CallReady();
  }

  void CallReady() {
    asked = {};
    const ShortWork short_work;
    if (ready) RunContained(std::exchange(ready, nullptr));
  }

  WaitFor owed, asked;
  std::function<void()> ready, to_close;
};

ReadySocket::ReadySocket(EventLoop& loop, OwnedSocket socket)
    : context_(loop.reactor().context), descriptor_(context_), waits_(std::make_shared<Waits>()) {
  error_code error;
  descriptor_.assign(socket.get(), error);
  if (!error) socket.Release();
}

ReadySocket::~ReadySocket() {
  waits_->asked = {};
  waits_->ready = nullptr;
  waits_->to_close = nullptr;
  error_code ignored;
  descriptor_.close(ignored);
}

void ReadySocket::Wait(WaitFor what, std::function<void()> ready) {
  waits_->asked = what;
  waits_->ready = std::move(ready);
  if (what.nothing) return AwaitNothing();
  if (what.readable) AwaitReadable();
  if (what.writable) AwaitWritable();
}

void ReadySocket::WaitToClose(std::function<void()> writable) {
  waits_->to_close = std::move(writable);
  AwaitWritable();
}

void ReadySocket::Abort() {
  const linger at_once = {1, 0};
  setsockopt(descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

void ReadySocket::AwaitReadable() {
  if (waits_->owed.readable) return;
  descriptor_.async_wait(descriptor_base::wait_read,
                         [waits = waits_](const error_code&) { waits->OnReadable(); });
  waits_->owed.readable = true;
}

void ReadySocket::AwaitWritable() {
  if (waits_->owed.writable) return;
  descriptor_.async_wait(descriptor_base::wait_write,
                         [waits = waits_](const error_code&) { waits->OnWritable(); });
  waits_->owed.writable = true;
}

void ReadySocket::AwaitNothing() {
  if (waits_->owed.nothing) return;
  boost::asio::post(context_, [waits = waits_] { waits->OnNothing(); });
  waits_->owed.nothing = true;
}

}  // namespace lowkey

#ifndef LOWKEY_SERVER_NET_OWNED_SOCKET_H_
#define LOWKEY_SERVER_NET_OWNED_SOCKET_H_

#include <unistd.h>

#include <utility>

namespace lowkey {

// A file descriptor that is closed with this object; -1 is none.
class OwnedSocket {
 public:
  explicit OwnedSocket(int descriptor = -1) : descriptor_(descriptor) {}
  OwnedSocket(OwnedSocket&& other) noexcept : descriptor_(other.Release()) {}
  OwnedSocket& operator=(OwnedSocket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnedSocket() { Close(); }

  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }
  void Close() {
    if (descriptor_ >= 0) close(Release());
  }

 private:
  int descriptor_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_OWNED_SOCKET_H_

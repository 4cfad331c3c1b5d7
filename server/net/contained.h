#ifndef LOWKEY_SERVER_NET_CONTAINED_H_
#define LOWKEY_SERVER_NET_CONTAINED_H_

#include <new>

namespace lowkey {

// Runs `work`. A lack of memory ends this work alone; any other exception is a bug of ours and ends
// the process.
template <typename Work>
void RunContained(Work&& work) noexcept {
  try {
    work();
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_CONTAINED_H_

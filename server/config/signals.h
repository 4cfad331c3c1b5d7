#ifndef LOWKEY_SERVER_CONFIG_SIGNALS_H_
#define LOWKEY_SERVER_CONFIG_SIGNALS_H_

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "absl/time/time.h"

namespace lowkey {

// SIGINT and SIGTERM as ordinary events. Block them before any thread is started, so that none of
// them is interrupted.
void BlockStopSignals();

// Waits until one of them comes, or `timeout` has passed; which one came, if any. Callable after
// BlockStopSignals; takes the signal away.
std::optional<int> NextStopSignal(absl::Duration timeout);
inline bool WaitForStopSignal(absl::Duration timeout) {
  return NextStopSignal(timeout).has_value();
}

// Calls `on_signal` with each stop signal from its own thread, until destruction.
class SignalWatcher {
 public:
  explicit SignalWatcher(std::function<void(int)> on_signal);
  ~SignalWatcher();

 private:
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_SIGNALS_H_

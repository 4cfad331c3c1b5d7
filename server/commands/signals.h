#ifndef LOWKEY_SERVER_COMMANDS_SIGNALS_H_
#define LOWKEY_SERVER_COMMANDS_SIGNALS_H_

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"

namespace lowkey {

// SIGINT and SIGTERM as ordinary events. Block them before any thread is started, so that none of
// them is interrupted.
void BlockStopSignals();

// Waits until one of them comes, or `timeout` has passed; true when one came. Callable after
// BlockStopSignals; takes the signal away.
bool WaitForStopSignal(absl::Duration timeout);

// Calls `on_signal` from its own thread at each stop signal, until destruction.
class SignalWatcher {
 public:
  explicit SignalWatcher(std::function<void()> on_signal);
  ~SignalWatcher();

 private:
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_COMMANDS_SIGNALS_H_

#ifndef LOWKEY_SERVER_CONFIG_TERMINAL_SIGNALS_H_
#define LOWKEY_SERVER_CONFIG_TERMINAL_SIGNALS_H_

#include <signal.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include "absl/time/time.h"

namespace lowkey {

// Blocks SIGINT and SIGTERM, which then come as ordinary events. Call it before any thread starts,
// so that no thread is interrupted.
void BlockStopSignals();

// Takes the next of these signals; absent if none comes within `timeout`. Callable after
// BlockStopSignals.
std::optional<int> NextStopSignal(absl::Duration timeout);
inline bool WaitForStopSignal(absl::Duration timeout) {
  return NextStopSignal(timeout).has_value();
}

// Blocks these signals in this thread while it lives; afterwards they are as before.
class StopSignalsBlocked {
 public:
  StopSignalsBlocked();
  ~StopSignalsBlocked();
  StopSignalsBlocked(const StopSignalsBlocked&) = delete;
  StopSignalsBlocked& operator=(const StopSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Blocks SIGHUP too, for servers, which take it as the wish to read their files again.
void BlockHangUp();
// Returns whether a SIGHUP came since the last call. Callable after BlockHangUp.
bool TakeHangUp();

// Makes writes to a pipe without a reader fail, where they would end the process.
void IgnoreBrokenPipes();

// Opens /dev/null in the place of standard input, output and error where they are closed.
// Otherwise the next file or socket would get the number, and what is printed.
void FillStandardFiles();

// Calls `on_signal` from a thread of its own with each stop signal, until destruction.
class SignalWatcher {
 public:
  explicit SignalWatcher(std::function<void(int)> on_signal);
  ~SignalWatcher();

 private:
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_TERMINAL_SIGNALS_H_

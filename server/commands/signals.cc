#include "server/commands/signals.h"

#include <csignal>
#include <ctime>
#include <utility>

namespace lowkey {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

bool WaitForStopSignal(absl::Duration timeout) {
  const sigset_t signals = StopSignals();
  const timespec time = absl::ToTimespec(timeout);
  return sigtimedwait(&signals, nullptr, &time) > 0;
}

SignalWatcher::SignalWatcher(std::function<void()> on_signal) {
  BlockStopSignals();
  thread_ = std::thread([this, on_signal = std::move(on_signal)] {
    while (!is_stopping_) {
      if (WaitForStopSignal(kPollInterval)) on_signal();
    }
  });
}

SignalWatcher::~SignalWatcher() {
  is_stopping_ = true;
  thread_.join();
}

}  // namespace lowkey

#include "server/config/terminal/signals.h"

#include <fcntl.h>

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

sigset_t HangUp() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGHUP);
  return signals;
}

}  // namespace

void BlockHangUp() {
  const sigset_t signals = HangUp();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

bool TakeHangUp() {
  const sigset_t signals = HangUp();
  const timespec none = {};
  return sigtimedwait(&signals, nullptr, &none) > 0;
}

void IgnoreBrokenPipes() { std::signal(SIGPIPE, SIG_IGN); }

void FillStandardFiles() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    // open gives the lowest number that is free.
    if (fcntl(descriptor, F_GETFD) < 0) (void)open("/dev/null", O_RDWR);
  }
}

void BlockStopSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

StopSignalsBlocked::StopSignalsBlocked() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, &before_);
}

StopSignalsBlocked::~StopSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

std::optional<int> NextStopSignal(absl::Duration timeout) {
  const sigset_t signals = StopSignals();
  const timespec time = absl::ToTimespec(timeout);
  const int signal = sigtimedwait(&signals, nullptr, &time);
  return signal > 0 ? std::optional<int>(signal) : std::nullopt;
}

SignalWatcher::SignalWatcher(std::function<void(int)> on_signal) {
  BlockStopSignals();
  thread_ = std::thread([this, on_signal = std::move(on_signal)] {
    while (!is_stopping_) {
      if (const std::optional<int> signal = NextStopSignal(kPollInterval)) on_signal(*signal);
    }
  });
}

SignalWatcher::~SignalWatcher() {
  is_stopping_ = true;
  thread_.join();
}

}  // namespace lowkey

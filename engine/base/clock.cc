#include "engine/base/clock.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"

namespace lowkey {

absl::Time SteadyNow() {
  using Clock = std::chrono::steady_clock;
  struct Start {
    absl::Time date = absl::Now();
    Clock::time_point counted = Clock::now();
  };
  static const Start start;
  return start.date + absl::FromChrono(Clock::now() - start.counted);
}

absl::Time DateNow() { return absl::Now(); }

absl::Time DateOf(absl::Time steady) {
  // A smaller difference is the time between the two readings.
  return steady + absl::Trunc(absl::Now() - SteadyNow(), absl::Milliseconds(10));
}

absl::Duration TimeUntil(absl::Time steady) {
  return std::max(steady - SteadyNow(), absl::ZeroDuration());
}

}  // namespace lowkey

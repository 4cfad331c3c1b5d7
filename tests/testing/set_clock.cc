#include "tests/testing/set_clock.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace {

std::atomic<int64_t> ahead_s{0};

}  // namespace

// These take the place of the C library's for the whole program.
extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += ahead_s;
  return result;
}

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

namespace lowkey {

void SetClockAhead(absl::Duration ahead) { ahead_s = absl::ToInt64Seconds(ahead); }

}  // namespace lowkey

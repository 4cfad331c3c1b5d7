#include "engine/base/threads/short_turns.h"

#include <cstdint>

#ifdef __linux__
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace lowkey {

#ifdef __linux__

namespace {

// The first version of the kernel's sched_attr; the C library declares it since glibc 2.41.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t turn_ns = 0;  // sched_runtime
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(SchedulingAttributes) == 48);

}  // namespace

void TakeShortTurns() {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  SchedulingAttributes attributes;
  attributes.nice = getpriority(PRIO_PROCESS, 0);  // this thread's
  attributes.turn_ns = 100'000;
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);  // a kernel that refuses goes on as before
}

#else

void TakeShortTurns() {}

#endif

}  // namespace lowkey

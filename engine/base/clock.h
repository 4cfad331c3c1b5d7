#ifndef LOWKEY_ENGINE_BASE_CLOCK_H_
#define LOWKEY_ENGINE_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace lowkey {

// Returns the time by a clock that nobody sets: the date when the process first asked, and what the
// monotonic clock has counted since. Deadlines, waits and durations are kept in it, and an
// absl::Time belongs to it where nothing says that it is a date. Thread-safe.
absl::Time SteadyNow();

// Returns the date by the machine's clock, for people, files and other programs. It jumps when
// somebody sets that clock or a paused machine goes on.
absl::Time DateNow();

// Returns the date of a time of SteadyNow, by the machine's clock as it is set now.
absl::Time DateOf(absl::Time steady);

// Returns how long it is until a time of SteadyNow, and no time where that is over. Mutexes wait so
// long: their own deadlines are dates.
absl::Duration TimeUntil(absl::Time steady);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_CLOCK_H_

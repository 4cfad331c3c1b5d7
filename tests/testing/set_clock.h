#ifndef LOWKEY_TESTS_TESTING_SET_CLOCK_H_
#define LOWKEY_TESTS_TESTING_SET_CLOCK_H_

#include "absl/time/time.h"

namespace lowkey {

// Sets the program's clock of dates so far ahead of the machine's, as if somebody had set that. The
// kernel does not know: a mutex whose wait has an end and begins later waits for longer.
void SetClockAhead(absl::Duration ahead);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_SET_CLOCK_H_

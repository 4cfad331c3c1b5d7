#ifndef LOWKEY_ENGINE_SCHEDULER_STEP_PACE_H_
#define LOWKEY_ENGINE_SCHEDULER_STEP_PACE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace lowkey {

// Learns from the time of steps how many rows a step may have while streams wait for its end, so
// that the gap between a stream's tokens stays near a target on any machine, model and depth. Which
// rows share a step never changes what they compute, so pacing by the clock changes no output.
class StepPace {
 public:
  // The limit's lower bound, however slow the machine: prompts must end some day.
  static constexpr int64_t kMinRows = 16;

  // 0 < target; max_rows >= 1.
  StepPace(absl::Duration target, int64_t max_rows);

  int64_t max_rows() const { return limit_; }

  // Notes the time of a step of n_rows, decode and prompt rows together. A step that took too long
  // lowers the limit at once; a step that reached the limit in less time at most doubles it.
  void Note(int64_t n_rows, absl::Duration took);

 private:
  const absl::Duration target_;
  const int64_t max_rows_;
  int64_t limit_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SCHEDULER_STEP_PACE_H_

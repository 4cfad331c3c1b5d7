#ifndef LOWKEY_ENGINE_SCHEDULER_FORECAST_H_
#define LOWKEY_ENGINE_SCHEDULER_FORECAST_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace lowkey {

// The time of a step by its number of rows: a line through the steps that were seen, which may bend
// at their mean.
struct StepCost {
  double rows = 0;     // the mean
  double seconds = 0;  // of a step of so many rows
  // Seconds that a row adds to steps of fewer rows, and to those of more.
  double per_row_below = 0, per_row_above = 0;

  double SecondsOf(double n_rows) const {
    return seconds + (n_rows - rows) * (n_rows < rows ? per_row_below : per_row_above);
  }
};

// Learns StepCost from steps: least squares, where older steps count less and less. Where they
// leave the slope open, steps of other sizes are taken to be as short as they allow: who is refused
// for what is not known computes nothing from which more could be learned. For the same reason
// times halve in five minutes in which there is no step.
class StepCostMeter {
 public:
  void Note(int64_t n_rows, absl::Duration took, absl::Time now);

  // nullopt before kMinSteps were noted.
  std::optional<StepCost> cost(absl::Time now) const;

 private:
  static constexpr int64_t kMinSteps = 8;

  std::optional<StepCost> Fit() const;

  int64_t n_steps_ = 0;
  absl::Time noted_ = absl::InfinitePast();  // the last step
  // Sums, weighted by age, of 1, rows, seconds, rows^2, rows * seconds, seconds^2.
  double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0, yy_ = 0;
};

// The work left to do for one request.
struct RemainingWork {
  int64_t n_prompt_rows = 0;
  int64_t n_decode_rows = 0;  // of each choice
  int64_t n_choices = 1;
  int64_t bytes = 0;          // reserved cache
  int64_t n_cached_rows = 0;  // of the prompt rows, those that the cache may turn out to hold
};

// Bounds under which work shares steps.
struct ForecastLimits {
  int64_t max_running_seqs = 1;
  int64_t cache_bytes = 0;
  int64_t max_batch_tokens = 1;
  int64_t max_mixed_rows = 1;  // of a step in which streams wait
};

struct Forecast {
  absl::Duration wait;         // until its first rows are computed
  absl::Duration first_token;  // until its prompt is computed
  absl::Duration next_token;   // from a token to the next
  absl::Duration end;          // until its last token is computed
  // This is first_token for the case that the cache holds RemainingWork::n_cached_rows of the
  // prompt.
  absl::Duration cached_first_token = {};
};

// Returns the forecast for the case that the cache holds this share of n_cached_rows.
Forecast WithCachedShare(const Forecast& forecast, double share);

// Learns how many times longer than forecast requests take, at the worst of thirty: a request that
// is admitted because its forecast just fits should be served in time. What was learned halves in
// five minutes, so that what refuses every request, and can learn from none, ends too.
class ForecastErrors {
 public:
  // `actual` is a lower bound for a request that ended before its first token.
  void NoteFirstToken(const Forecast& forecast, absl::Duration actual, absl::Time now);
  // `actual` is the mean of a request's gaps between tokens, none of which waited for a reader.
  void NoteNextToken(const Forecast& forecast, absl::Duration actual, absl::Time now);

  Forecast Correct(const Forecast& forecast, absl::Time now) const;

 private:
  struct Factors {
    double first_token = 1, next_token = 1;
  };
  Factors At(absl::Time now) const;

  Factors factors_;
  absl::Time learned_ = absl::InfinitePast();
};

// Forecasts when `own` is done behind `running` and `ahead` (in this order), at this cost of steps,
// by playing through who is admitted when a request ends. Time O((running + ahead) * running set).
Forecast ForecastWork(std::vector<RemainingWork> running, const std::vector<RemainingWork>& ahead,
                      const RemainingWork& own, const ForecastLimits& limits, const StepCost& cost);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SCHEDULER_FORECAST_H_

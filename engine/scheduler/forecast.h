#ifndef LOWKEY_ENGINE_SCHEDULER_FORECAST_H_
#define LOWKEY_ENGINE_SCHEDULER_FORECAST_H_

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"

namespace lowkey {

// The time of a step by its number of rows: straight lines between steps that were seen. Steps
// outside of them are taken to be as short as they can be, in proportion below the first point and
// as long as the last one above it: who is refused for what is not known computes nothing from
// which more could be learned.
struct StepCost {
  struct Point {
    double rows = 0, seconds = 0;
  };
  std::vector<Point> points;  // at least one, by ascending rows

  double SecondsOf(double n_rows) const;
};

// Learns StepCost: the mean of the latest steps of each size, where sizes up to twice as large
// count as one.
class StepCostMeter {
 public:
  void Note(int64_t n_rows, absl::Duration took, absl::Time now);

  // nullopt before kMinSteps were noted.
  std::optional<StepCost> cost() const;

  // Returns the last step's time.
  absl::Time noted() const { return noted_; }

 private:
  static constexpr int64_t kMinSteps = 8;

  struct Size {
    int64_t n_steps = 0;
    StepCost::Point mean;
    absl::Time noted = absl::InfinitePast();  // the last step
  };

  // Returns the longest that a step of so many rows is believed to take.
  double MostSeconds(double n_rows, absl::Time now) const;

  int64_t n_steps_ = 0;
  absl::Time noted_ = absl::InfinitePast();
  std::array<Size, 32> sizes_;  // by the binary logarithm of the rows
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

// Returns the forecast of a machine that has computed nothing for so long: times halve in five
// minutes, since who is refused for what is no longer true computes nothing that shows it.
Forecast AfterIdling(const Forecast& forecast, absl::Duration idle);

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

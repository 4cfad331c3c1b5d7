#include "engine/scheduler/forecast.h"

#include <algorithm>
#include <cmath>

namespace lowkey {
namespace {

// The share of its weight that a step keeps at the next step.
constexpr double kForget = 0.98;
// A step counts at most as this many times its expected time.
constexpr double kMostSurprise = 4;
// The slope may be off by so many of its standard errors.
constexpr double kDoubt = 1.5;
// A quantile is followed by steps up and down, in proportion to how often either is to happen.
constexpr double kQuantile = 0.97;
constexpr double kQuantileStep = 0.1;
constexpr double kMostError = 10;
constexpr absl::Duration kHalfLife = absl::Minutes(5);
// Shorter forecasts are noise.
constexpr absl::Duration kLeastForecast = absl::Milliseconds(1);

// Returns the share that is left, after so long, of what was learned.
double LeftAfter(absl::Duration age) {
  return std::exp2(-std::max(0.0, absl::FDivDuration(age, kHalfLife)));
}

void Follow(absl::Duration forecast, absl::Duration actual, double& error) {
  if (forecast < kLeastForecast) return;
  const bool is_above = absl::FDivDuration(actual, forecast) > error;
  error += kQuantileStep * (is_above ? kQuantile : kQuantile - 1);
  error = std::clamp(error, 1 / kMostError, kMostError);
}

// The running set, and the time at which it is reached.
class Play {
 public:
  Play(std::vector<RemainingWork> running, const ForecastLimits& limits, const StepCost& cost)
      : limits_(limits), cost_(cost), running_(std::move(running)) {}

  double seconds() const { return seconds_; }

  void AwaitRoom(const RemainingWork& work) {
    while (!Fits(work) && !running_.empty()) AwaitNextEnd();
  }
  void Admit(const RemainingWork& work) { running_.push_back(work); }

  // Computes every prompt row there is, with decode rows beside them.
  void FinishPrompts() {
    int64_t n_prompt_rows = 0, n_decode = 0;
    for (RemainingWork& w : running_) {
      n_prompt_rows += w.n_prompt_rows;
      if (w.n_prompt_rows == 0) n_decode += w.n_choices;
    }
    if (n_prompt_rows == 0) return;
    const int64_t rows_a_step = n_decode == 0
                                    ? limits_.max_batch_tokens
                                    : std::max<int64_t>(1, limits_.max_mixed_rows - n_decode);
    const int64_t n_steps = (n_prompt_rows + rows_a_step - 1) / rows_a_step;
    const double rows_of_each = static_cast<double>(n_prompt_rows) / static_cast<double>(n_steps);
    seconds_ += static_cast<double>(n_steps) *
                cost_.SecondsOf(rows_of_each + static_cast<double>(n_decode));
    for (RemainingWork& w : running_) {
      if (w.n_prompt_rows == 0) w.n_decode_rows = std::max<int64_t>(0, w.n_decode_rows - n_steps);
      w.n_prompt_rows = 0;
    }
  }

  double SecondsOfDecodeStep() const {
    int64_t n_rows = 0;
    for (const RemainingWork& w : running_) n_rows += w.n_choices;
    return cost_.SecondsOf(static_cast<double>(n_rows));
  }

 private:
  bool Fits(const RemainingWork& work) const {
    int64_t n_seqs = work.n_choices, bytes = work.bytes;
    for (const RemainingWork& w : running_) {
      n_seqs += w.n_choices;
      bytes += w.bytes;
    }
    return n_seqs <= limits_.max_running_seqs && bytes <= limits_.cache_bytes;
  }

  void AwaitNextEnd() {
    FinishPrompts();
    int64_t n_steps = running_.front().n_decode_rows;
    for (const RemainingWork& w : running_) n_steps = std::min(n_steps, w.n_decode_rows);
    seconds_ += static_cast<double>(n_steps) * SecondsOfDecodeStep();
    for (RemainingWork& w : running_) w.n_decode_rows -= n_steps;
    std::erase_if(running_, [](const RemainingWork& w) { return w.n_decode_rows == 0; });
  }

  const ForecastLimits limits_;
  const StepCost cost_;
  std::vector<RemainingWork> running_;
  double seconds_ = 0;
};

}  // namespace

void StepCostMeter::Note(int64_t n_rows, absl::Duration took, absl::Time now) {
  if (took <= absl::ZeroDuration()) return;  // less than the clock tells
  noted_ = now;
  if (++n_steps_ == 1) return;  // it also fetches what later steps find in memory
  const auto x = static_cast<double>(n_rows);
  double y = absl::ToDoubleSeconds(took);
  // A machine that stood still for once says little about the steps to come. Per row a step of many
  // rows takes no longer than those of few.
  if (const auto expected = Fit(); expected.has_value()) {
    y = std::min(y, kMostSurprise * std::max(expected->SecondsOf(x), x * y_ / x_));
  }
  n_ = kForget * n_ + 1;
  x_ = kForget * x_ + x;
  y_ = kForget * y_ + y;
  xx_ = kForget * xx_ + x * x;
  xy_ = kForget * xy_ + x * y;
  yy_ = kForget * yy_ + y * y;
}

std::optional<StepCost> StepCostMeter::Fit() const {
  if (n_steps_ < kMinSteps) return std::nullopt;
  StepCost cost{x_ / n_, y_ / n_};
  const double most = y_ / x_;  // all time is the rows'
  const double spread = xx_ - x_ * x_ / n_, shared = xy_ - x_ * y_ / n_;
  if (spread <= 1e-6 * xx_) {  // steps of one size do not show the slope
    cost.per_row_below = most;
    return cost;
  }
  const double slope = shared / spread;
  const double unexplained = std::max(0.0, yy_ - y_ * y_ / n_ - slope * shared);
  const double doubt = kDoubt * std::sqrt(unexplained / std::max(1.0, n_ - 2) / spread);
  cost.per_row_below = std::clamp(slope + doubt, 0.0, most);
  cost.per_row_above = std::clamp(slope - doubt, 0.0, most);
  return cost;
}

std::optional<StepCost> StepCostMeter::cost(absl::Time now) const {
  std::optional<StepCost> cost = Fit();
  if (!cost.has_value()) return cost;
  const double left = LeftAfter(now - noted_);
  cost->seconds *= left;
  cost->per_row_below *= left;
  cost->per_row_above *= left;
  return cost;
}

ForecastErrors::Factors ForecastErrors::At(absl::Time now) const {
  const double left = LeftAfter(now - learned_);
  return {1 + (factors_.first_token - 1) * left, 1 + (factors_.next_token - 1) * left};
}

Forecast WithCachedShare(const Forecast& forecast, double share) {
  const absl::Duration saved = share * (forecast.first_token - forecast.cached_first_token);
  Forecast less = forecast;
  less.first_token -= saved;
  less.end -= saved;
  return less;
}

void ForecastErrors::NoteFirstToken(const Forecast& forecast, absl::Duration actual,
                                    absl::Time now) {
  factors_ = At(now);
  learned_ = now;
  Follow(forecast.first_token, actual, factors_.first_token);
}

void ForecastErrors::NoteNextToken(const Forecast& forecast, absl::Duration actual,
                                   absl::Time now) {
  factors_ = At(now);
  learned_ = now;
  Follow(forecast.next_token, actual, factors_.next_token);
}

Forecast ForecastErrors::Correct(const Forecast& forecast, absl::Time now) const {
  const Factors factors = At(now);
  Forecast corrected;
  corrected.wait = forecast.wait * factors.first_token;
  corrected.first_token = forecast.first_token * factors.first_token;
  corrected.cached_first_token = forecast.cached_first_token * factors.first_token;
  corrected.next_token = forecast.next_token * factors.next_token;
  corrected.end =
      corrected.first_token + (forecast.end - forecast.first_token) * factors.next_token;
  return corrected;
}

Forecast ForecastWork(std::vector<RemainingWork> running, const std::vector<RemainingWork>& ahead,
                      const RemainingWork& own, const ForecastLimits& limits,
                      const StepCost& cost) {
  Play play(std::move(running), limits, cost);
  for (const RemainingWork& work : ahead) {
    play.AwaitRoom(work);
    play.Admit(work);
  }
  play.AwaitRoom(own);
  play.FinishPrompts();  // of requests admitted before
  Forecast forecast;
  forecast.wait = absl::Seconds(play.seconds());
  Play cached = play;
  RemainingWork less = own;
  less.n_prompt_rows -= own.n_cached_rows;
  cached.Admit(less);
  cached.FinishPrompts();
  forecast.cached_first_token = absl::Seconds(cached.seconds());
  play.Admit(own);
  play.FinishPrompts();
  forecast.first_token = absl::Seconds(play.seconds());
  forecast.next_token = absl::Seconds(play.SecondsOfDecodeStep());
  forecast.end = forecast.first_token + own.n_decode_rows * forecast.next_token;
  return forecast;
}

}  // namespace lowkey

#include "engine/scheduler/forecast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

namespace lowkey {
namespace {

// A mean is that of so many steps, of which older ones count less and less.
constexpr int64_t kRemembered = 16;
// A step counts at most as this many times its expected time.
constexpr double kMostSurprise = 4;
// A quantile is followed by steps up and down, in proportion to how often either is to happen.
constexpr double kQuantile = 0.97;
constexpr double kQuantileStep = 0.1;
constexpr double kMostError = 10;
constexpr absl::Duration kHalfLife = absl::Minutes(5);
// Shorter forecasts are noise.
constexpr absl::Duration kLeastForecast = absl::Milliseconds(1);

// Returns the share that is left, after so long, of what was learned.
double LeftAfter(absl::Duration age) {
  return std::exp2(-absl::FDivDuration(std::max(age, absl::ZeroDuration()), kHalfLife));
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

double StepCost::SecondsOf(double n_rows) const {
  const auto is_less = [](const Point& point, double rows) { return point.rows < rows; };
  const auto above = std::lower_bound(points.begin(), points.end(), n_rows, is_less);
  if (above == points.end()) return points.back().seconds;
  if (above == points.begin()) return above->seconds * n_rows / above->rows;
  const Point& below = *std::prev(above);
  const double share = (n_rows - below.rows) / (above->rows - below.rows);
  return below.seconds + share * (above->seconds - below.seconds);
}

void StepCostMeter::Note(int64_t n_rows, absl::Duration took, absl::Time now) {
  if (took <= absl::ZeroDuration() || n_rows <= 0) return;  // less than the clock tells
  if (++n_steps_ == 1) return;  // it also fetches what later steps find in memory
  Size& size = sizes_[std::min<size_t>(std::bit_width(static_cast<uint64_t>(n_rows)) - 1,
                                       sizes_.size() - 1)];
  const auto rows = static_cast<double>(n_rows);
  const double seconds = std::min(absl::ToDoubleSeconds(took), MostSeconds(rows, now));
  size.noted = noted_ = now;
  size.n_steps = std::min(size.n_steps + 1, kRemembered);
  const double weight = 1 / static_cast<double>(size.n_steps);
  size.mean.rows += weight * (rows - size.mean.rows);
  size.mean.seconds += weight * (seconds - size.mean.seconds);
}

// A machine that stood still for once says little about the steps to come. A step takes no longer
// than one of more rows, and per row no longer than one of fewer.
double StepCostMeter::MostSeconds(double n_rows, absl::Time now) const {
  std::optional<double> most;
  for (const Size& size : sizes_) {
    if (size.n_steps == 0 || now - size.noted > kHalfLife) continue;
    const double seconds = size.mean.seconds * std::max(1.0, n_rows / size.mean.rows);
    most = std::min(most.value_or(seconds), seconds);
  }
  return most.has_value() ? kMostSurprise * *most : std::numeric_limits<double>::infinity();
}

std::optional<StepCost> StepCostMeter::cost() const {
  if (n_steps_ < kMinSteps) return std::nullopt;
  StepCost cost;
  for (const Size& size : sizes_) {
    if (size.n_steps > 0) cost.points.push_back(size.mean);
  }
  return cost;
}

ForecastErrors::Factors ForecastErrors::At(absl::Time now) const {
  const double left = LeftAfter(now - learned_);
  return {1 + (factors_.first_token - 1) * left, 1 + (factors_.next_token - 1) * left};
}

Forecast AfterIdling(const Forecast& forecast, absl::Duration idle) {
  const double left = LeftAfter(idle);
  return {left * forecast.wait, left * forecast.first_token, left * forecast.next_token,
          left * forecast.end, left * forecast.cached_first_token};
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

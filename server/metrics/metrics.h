#ifndef LOWKEY_SERVER_METRICS_METRICS_H_
#define LOWKEY_SERVER_METRICS_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/config/enum_names.h"
#include "engine/runtime/engine.h"
#include "server/net/refusals.h"
#include "server/request/generation.h"

namespace lowkey {

enum class ServingState { kLoading, kServing, kDraining };

template <>
inline constexpr EnumNames kEnumNames<ServingState> = {"state", {"loading", "serving", "draining"}};

// The metrics that Prometheus reads: vLLM's names where vLLM has one, lowkey: for the rest;
// docs/metrics.md lists them. Thread-safe. Observing never waits for a reader longer than it
// takes to copy one histogram, so the engine's thread may do it; labels are few and made at the
// start.
class Metrics {
 public:
  // Every sample is labeled with the model's name.
  explicit Metrics(const std::string& model_name);

  void SetState(ServingState state) { state_ = state; }
  ServingState state() const { return state_; }

  // The gauges show this engine's Stats from then on; it must outlive every later call of Text.
  void SetEngine(const Engine* engine) { engine_ = engine; }

  // Observes a generation's time to its first token, and between two tokens of one choice.
  void ObserveFirstToken(absl::Duration time) { first_token_.Observe(absl::ToDoubleSeconds(time)); }
  void ObserveNextToken(absl::Duration time) { next_token_.Observe(absl::ToDoubleSeconds(time)); }

  // Observes the end of an admitted generation, `time` after its submission.
  void ObserveEnd(const GenerationResult& result, absl::Duration time);

  // Counts what the network's limits refused.
  void CountNetworkRefusal(NetworkRefusal reason);

  // Adds `n`, which may be negative, to the streams that wait for their reader.
  void AddPausedStreams(int64_t n) { n_paused_streams_ += n; }

  // Counts a generation or scoring that was refused before its admission.
  void CountRefusal(absl::StatusCode code);

  // Shows how many lines the log has dropped. Call this before the first Text.
  void WatchLog(std::function<int64_t()> n_dropped_lines) {
    n_dropped_lines_ = std::move(n_dropped_lines);
  }

  // Returns all metrics in Prometheus' text format 0.0.4.
  std::string Text() const;

 private:
  using Counters = prometheus::Family<prometheus::Counter>;

  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const prometheus::Histogram::BucketBoundaries& bounds);
  Counters& AddCounters(const std::string& name, const std::string& help);

  const prometheus::Labels labels_;
  prometheus::Registry registry_;
  prometheus::Histogram &first_token_, &next_token_, &whole_request_, &queue_;
  Counters &finished_, &by_mechanism_, &tokens_by_mechanism_, &refused_, &network_refused_;
  prometheus::Counter& saved_bytes_;
  std::function<int64_t()> n_dropped_lines_ = {};
  std::atomic<int64_t> n_paused_streams_{0};
  std::atomic<ServingState> state_{ServingState::kLoading};
  std::atomic<const Engine*> engine_{nullptr};
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_METRICS_METRICS_H_

#ifndef LOWKEY_SERVER_METRICS_METRICS_H_
#define LOWKEY_SERVER_METRICS_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "engine/config/enum_names.h"
#include "engine/runtime/engine.h"
#include "server/metrics/network_stats.h"
#include "server/net/refusals.h"
#include "server/request/generation.h"

namespace lowkey {

enum class ServingState { kLoading, kServing, kDraining };

template <>
inline constexpr EnumNames kEnumNames<ServingState> = {"state", {"loading", "serving", "draining"}};

// The metrics that Prometheus reads: vLLM's names where vLLM has one, lowkey: for the rest;
// docs/metrics.md lists them. Thread-safe. Observing never waits for a reader longer than it
// takes to copy one histogram, so the engine's thread may do it. Labels have few values, which no
// client chooses.
class Metrics {
 public:
  // Every sample is labeled with the model's name.
  explicit Metrics(const std::string& model_name);

  void SetState(ServingState state) { state_ = state; }
  ServingState state() const { return state_; }

  // The gauges show this engine's Stats from then on; it must outlive every later call of Text.
  // Call this once, before the first request: the bounds of histograms of tokens end at its
  // context.
  void SetEngine(const Engine* engine);

  // Observes a generation's time to its first token, and between two tokens of one choice.
  void ObserveFirstToken(absl::Duration time) { first_token_.Observe(absl::ToDoubleSeconds(time)); }
  void ObserveNextToken(absl::Duration time) { next_token_.Observe(absl::ToDoubleSeconds(time)); }

  // Observes the end of an admitted generation, `time` after its submission.
  void ObserveEnd(const GenerationResult& result, absl::Duration time);

  // Counts what the network's limits refused.
  void CountNetworkRefusal(NetworkRefusal reason);

  // Observes how late an event loop's timer was: for so long the loop did not answer anyone.
  void ObserveLoopDelay(absl::Duration delay) { loop_delay_.Observe(absl::ToDoubleSeconds(delay)); }

  // Counts an answered request of an API ("grpc"), by its code: gRPC's name of the status for APIs
  // over gRPC, HTTP's number for others. Both texts come from small sets.
  void CountHttpRequest(std::string_view api, std::string_view code);

  // Shows what the port's connections do; null: no longer. `stats` is called from Text alone, and
  // not after a later WatchNetwork has returned.
  void WatchNetwork(std::function<NetworkStats()> stats);

  // Shows a counter that something else counts, which must outlive every later call of Text. Call
  // this before the first Text.
  void WatchCounter(std::string name, std::string help, std::function<int64_t()> value) {
    watched_.push_back({std::move(name), std::move(help), std::move(value)});
  }

  // Adds `n`, which may be negative, to the streams that wait for their reader.
  void AddPausedStreams(int64_t n) { n_paused_streams_ += n; }

  // Counts a generation or scoring that was refused before its admission.
  void CountRefusal(absl::StatusCode code);

  // Returns all metrics in Prometheus' text format 0.0.4.
  std::string Text() const;

 private:
  using Counters = prometheus::Family<prometheus::Counter>;

  struct WatchedCounter {
    std::string name, help;
    std::function<int64_t()> value;
  };

  // Histograms of requests whose bounds depend on the model.
  struct TokenHistograms {
    prometheus::Histogram &prompt, &computed_prompt, &generated, &most_generated, &asked;
  };

  prometheus::Histogram& AddHistogram(const std::string& name, const std::string& help,
                                      const prometheus::Histogram::BucketBoundaries& bounds);
  Counters& AddCounters(const std::string& name, const std::string& help);

  void ObserveTokens(const GenerationResult& result);
  void ObserveTimes(const GenerationResult& result);

  const std::string model_name_;
  prometheus::Registry registry_;
  prometheus::Histogram &first_token_, &next_token_, &whole_request_, &queue_, &prefill_, &decode_,
      &inference_, &per_output_token_, &n_choices_, &loop_delay_;
  Counters &finished_, &by_mechanism_, &tokens_by_mechanism_, &refused_, &network_refused_,
      &http_requests_;
  prometheus::Counter& saved_bytes_;
  std::vector<WatchedCounter> watched_;
  std::optional<TokenHistograms> tokens_;  // set before engine_ is
  mutable absl::Mutex mutex_;
  std::function<NetworkStats()> network_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> n_paused_streams_{0};
  std::atomic<ServingState> state_{ServingState::kLoading};
  std::atomic<const Engine*> engine_{nullptr};
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_METRICS_METRICS_H_

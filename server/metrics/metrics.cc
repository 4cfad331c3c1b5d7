#include "server/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/config/attention_options.h"
#include "server/metrics/families.h"

namespace lowkey {
namespace {

using prometheus::MetricFamily;

// Bounds of vLLM's histograms, in seconds: its dashboards then fit.
const prometheus::Histogram::BucketBoundaries kFirstTokenBounds = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
    1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const prometheus::Histogram::BucketBoundaries kNextTokenBounds = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
    0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const prometheus::Histogram::BucketBoundaries kRequestBounds = {
    0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
    30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

const prometheus::Histogram::BucketBoundaries kLoopDelayBounds = {
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0};

double Seconds(int64_t microseconds) { return static_cast<double>(microseconds) * 1e-6; }

// vLLM's names of the finish reasons, by our FinishReason.
constexpr EnumNames kFinishNames = {"finish reason",
                                    {"stop", "length", "stop", "abort", "abort", "error"}};

MetricFamily StateFamily(ServingState now, const prometheus::Labels& labels) {
  MetricFamily family = {"lowkey:serving_state",
                         "1 for the state that the server is in.",
                         prometheus::MetricType::Gauge,
                         {}};
  for (const ServingState state :
       {ServingState::kLoading, ServingState::kServing, ServingState::kDraining}) {
    prometheus::Labels with_state = labels;
    with_state.insert({"state", std::string(NameOf(state))});
    MetricFamily one = GaugeFamily("", "", state == now ? 1 : 0, with_state);
    family.metric.push_back(std::move(one.metric[0]));
  }
  return family;
}

}  // namespace

Metrics::Metrics(const std::string& model_name)
    : model_name_(model_name),
      first_token_(AddHistogram("vllm:time_to_first_token_seconds",
                                "From submission to the first token.", kFirstTokenBounds)),
      next_token_(AddHistogram("vllm:inter_token_latency_seconds",
                               "Between two tokens of one choice.", kNextTokenBounds)),
      whole_request_(AddHistogram("vllm:e2e_request_latency_seconds",
                                  "From submission to the end of a generation.", kRequestBounds)),
      queue_(AddHistogram("vllm:request_queue_time_seconds",
                          "From submission to the first step, of generations that had one.",
                          kRequestBounds)),
      prefill_(AddHistogram("vllm:request_prefill_time_seconds",
                            "From the first step to the first token, of generations that gave one.",
                            kRequestBounds)),
      decode_(AddHistogram("vllm:request_decode_time_seconds",
                           "From the first token to the last one.", kRequestBounds)),
      inference_(AddHistogram("vllm:request_inference_time_seconds",
                              "From the first step to the last token.", kRequestBounds)),
      per_output_token_(AddHistogram("vllm:request_time_per_output_token_seconds",
                                     "Mean time between the tokens of a generation's longest "
                                     "choice, of those that gave two or more.",
                                     kNextTokenBounds)),
      n_choices_(AddHistogram("vllm:request_params_n", "Choices that a generation asked for.",
                              {1, 2, 5, 10, 20})),
      loop_delay_(AddHistogram("lowkey:loop_delay_seconds",
                               "How late a network thread's timer was.", kLoopDelayBounds)),
      finished_(AddCounters("vllm:request_success_total", "Choices ended, by finish reason.")),
      by_mechanism_(AddCounters("lowkey:requests_total", "Generations ended, by mechanism.")),
      tokens_by_mechanism_(AddCounters("lowkey:generated_tokens_total",
                                       "Tokens of ended generations, by mechanism.")),
      refused_(AddCounters("lowkey:refused_requests_total",
                           "Generations and scorings refused before admission, by status code.")),
      network_refused_(AddCounters("lowkey:network_refusals_total",
                                   "Connections and requests that the network's limits ended or "
                                   "refused, by reason.")),
      http_requests_(AddCounters("lowkey:http_requests_total",
                                 "Requests answered, by API and by its status.")),
      saved_bytes_(AddCounters("lowkey:principal_key_saved_bytes_total",
                               "Cache that ended atp generations held less than standard would.")
                       .Add({})) {
  // Series exist from the start: a rate is then right from the first event on.
  for (std::string_view name : {"stop", "length", "abort", "error"})
    finished_.Add({{"finished_reason", std::string(name)}});
  for (Mechanism mechanism : AllMechanisms()) {
    const prometheus::Labels label = {{"mechanism", std::string(MechanismName(mechanism))}};
    by_mechanism_.Add(label);
    tokens_by_mechanism_.Add(label);
  }
  for (absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kOutOfRange,
        absl::StatusCode::kResourceExhausted, absl::StatusCode::kUnavailable}) {
    refused_.Add({{"code", absl::StatusCodeToString(code)}});
  }
  for (std::string_view reason : kNetworkRefusalNames) {
    network_refused_.Add({{"reason", std::string(reason)}});
  }
}

prometheus::Histogram& Metrics::AddHistogram(
    const std::string& name, const std::string& help,
    const prometheus::Histogram::BucketBoundaries& bounds) {
  return prometheus::BuildHistogram()
      .Name(name)
      .Help(help)
      .Labels(LabelsOf(name, model_name_))
      .Register(registry_)
      .Add({}, bounds);
}

Metrics::Counters& Metrics::AddCounters(const std::string& name, const std::string& help) {
  return prometheus::BuildCounter()
      .Name(name)
      .Help(help)
      .Labels(LabelsOf(name, model_name_))
      .Register(registry_);
}

void Metrics::ObserveEnd(const GenerationResult& result, absl::Duration time) {
  const FinalEvent& event = result.engine;
  whole_request_.Observe(absl::ToDoubleSeconds(time));
  ObserveTimes(result);
  ObserveTokens(result);
  int64_t n_generated = 0;
  for (const ChoiceFinish& choice : result.choices) {
    const std::string_view reason = FindName(kFinishNames, static_cast<int32_t>(choice.reason));
    finished_.Add({{"finished_reason", std::string(reason)}}).Increment();
    n_generated += choice.n_generated;
  }
  const AttentionReport& attention = event.attention;
  const prometheus::Labels label = {{"mechanism", std::string(MechanismName(attention.mechanism))}};
  by_mechanism_.Add(label).Increment();
  tokens_by_mechanism_.Add(label).Increment(static_cast<double>(n_generated));
  if (attention.mechanism == Mechanism::kAtp) {
    // A counter never falls, but a basis may take more than a short sequence saves.
    const int64_t saved = attention.standard_cache_bytes - attention.cache_bytes;
    saved_bytes_.Increment(static_cast<double>(std::max<int64_t>(saved, 0)));
  }
}

void Metrics::ObserveTimes(const GenerationResult& result) {
  const Timings& timings = result.engine.timings;
  if (timings.ttft_us == 0) return;
  queue_.Observe(Seconds(timings.queue_us));
  prefill_.Observe(Seconds(timings.prefill_us));
  decode_.Observe(Seconds(timings.decode_us));
  inference_.Observe(Seconds(timings.prefill_us + timings.decode_us));
  int32_t most_generated = 0;
  for (const ChoiceFinish& choice : result.choices) {
    most_generated = std::max(most_generated, choice.n_generated);
  }
  if (most_generated > 1) {
    per_output_token_.Observe(Seconds(timings.decode_us) / (most_generated - 1));
  }
}

void Metrics::ObserveTokens(const GenerationResult& result) {
  n_choices_.Observe(static_cast<double>(result.choices.size()));
  if (engine_ == nullptr) return;
  const FinalEvent& event = result.engine;
  tokens_->prompt.Observe(event.n_prompt_tokens);
  tokens_->computed_prompt.Observe(event.n_prompt_tokens - event.n_cached_tokens);
  int32_t most_generated = 0;
  for (const ChoiceFinish& choice : result.choices) {
    tokens_->generated.Observe(choice.n_generated);
    most_generated = std::max(most_generated, choice.n_generated);
  }
  tokens_->most_generated.Observe(most_generated);
  tokens_->asked.Observe(result.max_new_tokens);
}

void Metrics::SetEngine(const Engine* engine) {
  const prometheus::Histogram::BucketBoundaries bounds =
      TokenBounds(engine->limits().context_tokens);
  const auto add = [&](const char* name, const char* help) -> prometheus::Histogram& {
    return AddHistogram(name, help, bounds);
  };
  tokens_.emplace(TokenHistograms{
      add("vllm:request_prompt_tokens", "Tokens of a generation's prompt."),
      add("vllm:request_prefill_kv_computed_tokens",
          "Prompt tokens that were not found in the prefix cache."),
      add("vllm:request_generation_tokens", "Tokens of a choice."),
      add("vllm:request_max_num_generation_tokens", "Tokens of a generation's longest choice."),
      add("vllm:request_params_max_tokens", "Tokens that a generation may give, per choice.")});
  engine_ = engine;
}

void Metrics::CountHttpRequest(std::string_view api, std::string_view code) {
  http_requests_.Add({{"api", std::string(api)}, {"code", std::string(code)}}).Increment();
}

void Metrics::WatchNetwork(std::function<NetworkStats()> stats) {
  absl::MutexLock lock(&mutex_);
  network_ = std::move(stats);
}

void Metrics::CountRefusal(absl::StatusCode code) {
  refused_.Add({{"code", absl::StatusCodeToString(code)}}).Increment();
}

void Metrics::CountNetworkRefusal(NetworkRefusal reason) {
  const std::string_view name = kNetworkRefusalNames[static_cast<size_t>(reason)];
  network_refused_.Add({{"reason", std::string(name)}}).Increment();
}

std::string Metrics::Text() const {
  std::vector<MetricFamily> families = registry_.Collect();
  const auto append = [&families](std::vector<MetricFamily> more) {
    families.insert(families.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
  };
  families.push_back(StateFamily(state_, LabelsOf("lowkey:serving_state", model_name_)));
  const std::string paused = "lowkey:num_streams_paused";
  families.push_back(GaugeFamily(paused, "Generations that wait for their reader.",
                                 static_cast<double>(n_paused_streams_),
                                 LabelsOf(paused, model_name_)));
  for (const WatchedCounter& counter : watched_) {
    families.push_back(CounterFamily(counter.name, counter.help,
                                     static_cast<double>(counter.value()),
                                     LabelsOf(counter.name, model_name_)));
  }
  {
    absl::MutexLock lock(&mutex_);
    if (network_ != nullptr) append(NetworkFamilies(network_(), model_name_));
  }
  if (const Engine* engine = engine_; engine != nullptr) {
    append(EngineFamilies(engine->Stats(), model_name_));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace lowkey

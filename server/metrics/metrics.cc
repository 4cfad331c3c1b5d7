#include "server/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/config/attention_options.h"
#include "server/version.h"

namespace lowkey {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

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

// vLLM's names of the finish reasons, by our FinishReason.
constexpr EnumNames kFinishNames = {"finish reason",
                                    {"stop", "length", "stop", "abort", "abort", "error"}};

// Returns one sample of `type`, labeled with `labels`.
MetricFamily Sample(const std::string& name, const std::string& help, MetricType type, double value,
                    const prometheus::Labels& labels) {
  prometheus::ClientMetric metric;
  for (const auto& [label, text] : labels) metric.label.push_back({label, text});
  metric.gauge.value = value;
  metric.counter.value = value;
  return {name, help, type, {std::move(metric)}};
}

std::vector<MetricFamily> EngineFamilies(const EngineStats& stats,
                                         const prometheus::Labels& labels) {
  const auto gauge = [&](const char* name, const char* help, double value) {
    return Sample(name, help, MetricType::Gauge, value, labels);
  };
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    return Sample(name, help, MetricType::Counter, static_cast<double>(value), labels);
  };
  const auto used = static_cast<double>(stats.cache_bytes_used);
  const auto total = static_cast<double>(stats.cache_bytes_total);
  prometheus::Labels info = labels;
  info.insert({{"version", std::string(kVersion)},
               {"dtype", stats.dtype},
               {"instruction_set", stats.instruction_set}});
  return {
      gauge("vllm:num_requests_running", "Requests being computed.",
            static_cast<double>(stats.n_running_requests)),
      gauge("vllm:num_requests_waiting", "Requests admitted and not begun.",
            static_cast<double>(stats.n_waiting_requests)),
      gauge("vllm:kv_cache_usage_perc", "Share of the cache in use, 0 to 1.",
            total > 0 ? used / total : 0),
      counter("vllm:prompt_tokens_total", "Prompt tokens, computed or found in the prefix cache.",
              stats.n_prompt_tokens),
      counter("vllm:generation_tokens_total", "Tokens generated.", stats.n_generated_tokens),
      counter("vllm:num_preemptions_total",
              "Requests that gave their cache up and computed it again.", stats.n_preemptions),
      counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
              stats.n_prefix_tokens),
      counter("vllm:spec_decode_num_draft_tokens_total", "Tokens drafted.", stats.n_drafted_tokens),
      counter("vllm:spec_decode_num_accepted_tokens_total", "Drafted tokens that became output.",
              stats.n_accepted_tokens),
      gauge("lowkey:cache_used_bytes", "Cache that requests hold now.", used),
      gauge("lowkey:cache_prefix_bytes", "Cache held for later prompts, given up when needed.",
            static_cast<double>(stats.cache_bytes_prefix)),
      gauge("lowkey:cache_limit_bytes", "All of the cache.", total),
      gauge("lowkey:weight_bytes", "Weights in memory.", static_cast<double>(stats.weight_bytes)),
      counter("lowkey:steps_total", "Forward passes.", stats.n_steps),
      Sample("lowkey:build_info", "Always 1; what runs is in the labels.", MetricType::Gauge, 1,
             info),
  };
}

}  // namespace

Metrics::Metrics(const std::string& model_name)
    : labels_{{"model_name", model_name}},
      first_token_(AddHistogram("vllm:time_to_first_token_seconds",
                                "From submission to the first token.", kFirstTokenBounds)),
      next_token_(AddHistogram("vllm:inter_token_latency_seconds",
                               "Between two tokens of one choice.", kNextTokenBounds)),
      whole_request_(AddHistogram("vllm:e2e_request_latency_seconds",
                                  "From submission to the end of a generation.", kRequestBounds)),
      queue_(AddHistogram("vllm:request_queue_time_seconds",
                          "From submission to the first step, of generations that had one.",
                          kRequestBounds)),
      finished_(AddCounters("vllm:request_success_total", "Choices ended, by finish reason.")),
      by_mechanism_(AddCounters("lowkey:requests_total", "Generations ended, by mechanism.")),
      tokens_by_mechanism_(AddCounters("lowkey:generated_tokens_total",
                                       "Tokens of ended generations, by mechanism.")),
      refused_(AddCounters("lowkey:refused_requests_total",
                           "Generations and scorings refused before admission, by status code.")),
      network_refused_(AddCounters("lowkey:network_refusals_total",
                                   "Connections and requests that the network's limits ended or "
                                   "refused, by reason.")),
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
  return prometheus::BuildHistogram().Name(name).Help(help).Labels(labels_).Register(registry_).Add(
      {}, bounds);
}

Metrics::Counters& Metrics::AddCounters(const std::string& name, const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Labels(labels_).Register(registry_);
}

void Metrics::ObserveEnd(const GenerationResult& result, absl::Duration time) {
  const FinalEvent& event = result.engine;
  whole_request_.Observe(absl::ToDoubleSeconds(time));
  if (event.timings.ttft_us > 0) queue_.Observe(static_cast<double>(event.timings.queue_us) * 1e-6);
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

void Metrics::CountRefusal(absl::StatusCode code) {
  refused_.Add({{"code", absl::StatusCodeToString(code)}}).Increment();
}

void Metrics::CountNetworkRefusal(NetworkRefusal reason) {
  const std::string_view name = kNetworkRefusalNames[static_cast<size_t>(reason)];
  network_refused_.Add({{"reason", std::string(name)}}).Increment();
}

std::string Metrics::Text() const {
  std::vector<MetricFamily> families = registry_.Collect();
  families.push_back(Sample("lowkey:num_streams_paused", "Generations that wait for their reader.",
                            MetricType::Gauge, static_cast<double>(n_paused_streams_), labels_));
  families.push_back(Sample(
      "lowkey:log_lines_dropped_total", "Log lines that nobody read in time.", MetricType::Counter,
      n_dropped_lines_ == nullptr ? 0 : static_cast<double>(n_dropped_lines_()), labels_));
  if (const Engine* engine = engine_; engine != nullptr) {
    std::vector<MetricFamily> more = EngineFamilies(engine->Stats(), labels_);
    families.insert(families.end(), std::make_move_iterator(more.begin()),
                    std::make_move_iterator(more.end()));
  }
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, families);
  return text.str();
}

}  // namespace lowkey

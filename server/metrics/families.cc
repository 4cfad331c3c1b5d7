#include "server/metrics/families.h"

#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "server/version.h"

namespace lowkey {
namespace {

using prometheus::ClientMetric;
using prometheus::Labels;
using prometheus::MetricFamily;
using prometheus::MetricType;

// The reasons of vllm:admission_rejections_total, by QueueBound. The first two are vLLM's.
constexpr std::string_view kQueueBoundNames[kNumQueueBounds] = {
    "max_num_queued_reqs", "max_num_queued_tokens", "max_wait"};

ClientMetric Sample(double value, const Labels& labels) {
  ClientMetric metric;
  for (const auto& [label, text] : labels) metric.label.push_back({label, text});
  metric.gauge.value = value;
  metric.counter.value = value;
  return metric;
}

Labels With(Labels labels, const std::string& name, std::string_view value) {
  labels.insert({name, std::string(value)});
  return labels;
}

// Makes families whose labels are the model's name and what their names ask for.
class FamilyMaker {
 public:
  explicit FamilyMaker(const std::string& model_name) : model_name_(model_name) {}

  template <typename T>
  MetricFamily Gauge(const std::string& name, const std::string& help, T value) const {
    return GaugeFamily(name, help, static_cast<double>(value), LabelsOf(name, model_name_));
  }
  template <typename T>
  MetricFamily Counter(const std::string& name, const std::string& help, T value) const {
    return CounterFamily(name, help, static_cast<double>(value), LabelsOf(name, model_name_));
  }
  Labels labels(const std::string& name) const { return LabelsOf(name, model_name_); }

 private:
  const std::string& model_name_;
};

MetricFamily StepRows(const EngineStats& stats, const FamilyMaker& make) {
  const std::string name = "vllm:iteration_tokens_total";
  ClientMetric metric = Sample(0, make.labels(name));
  prometheus::ClientMetric::Histogram& histogram = metric.histogram;
  for (size_t i = 0; i < kStepRowBounds.size(); ++i) {
    histogram.sample_count += static_cast<uint64_t>(stats.n_steps_by_rows[i]);
    histogram.bucket.push_back({histogram.sample_count, static_cast<double>(kStepRowBounds[i])});
  }
  histogram.sample_count += static_cast<uint64_t>(stats.n_steps_by_rows.back());
  histogram.sample_sum = static_cast<double>(stats.n_rows);
  return {name, "Tokens that a step computes.", MetricType::Histogram, {std::move(metric)}};
}

MetricFamily Rejections(const EngineStats& stats, const FamilyMaker& make) {
  MetricFamily family = {"vllm:admission_rejections_total",
                         "Requests that the queue refused, by the bound that they would pass.",
                         MetricType::Counter,
                         {}};
  Labels labels = make.labels(family.name);
  labels.erase("engine");  // vLLM counts them before it chooses an engine
  for (size_t i = 0; i < kNumQueueBounds; ++i) {
    family.metric.push_back(Sample(static_cast<double>(stats.n_refused_by_bound[i]),
                                   With(labels, "reason", kQueueBoundNames[i])));
  }
  return family;
}

MetricFamily CacheInfo(const EngineStats& stats, const FamilyMaker& make) {
  const std::string name = "vllm:cache_config_info";
  Labels labels = make.labels(name);
  labels.insert({{"block_size", std::to_string(stats.page_tokens)},
                 {"cache_dtype", stats.dtype == "float32" ? "float32" : "bfloat16"},
                 {"enable_prefix_caching", stats.keeps_prefixes ? "True" : "False"},
                 {"kv_cache_memory_bytes", std::to_string(stats.cache_bytes_total)}});
  return GaugeFamily(name, "Always 1; how the cache is set up is in the labels.", 1, labels);
}

std::vector<MetricFamily> CacheFamilies(const EngineStats& stats, const FamilyMaker& make) {
  const auto used = static_cast<double>(stats.cache_bytes_used);
  const auto total = static_cast<double>(stats.cache_bytes_total);
  return {
      make.Gauge("vllm:kv_cache_usage_perc", "Share of the cache in use, 0 to 1.",
                 total > 0 ? used / total : 0),
      make.Counter("vllm:prefix_cache_queries_total",
                   "Prompt tokens that were looked up in the prefix cache.",
                   stats.n_prefix_queries),
      make.Counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
                   stats.n_prefix_tokens),
      make.Counter("vllm:prompt_tokens_cached_total", "Prompt tokens that were not computed.",
                   stats.n_prefix_tokens),
      make.Counter("lowkey:prefix_file_tokens_total",
                   "Tokens that came into the prefix cache from files.",
                   stats.n_prefix_file_tokens),
      make.Counter("lowkey:prefix_file_read_bytes_total", "Bytes of prefixes read from files.",
                   stats.n_prefix_file_bytes_read),
      make.Counter("lowkey:prefix_file_written_bytes_total", "Bytes of prefixes written to files.",
                   stats.n_prefix_file_bytes_written),
      make.Counter("lowkey:prefix_file_errors_total",
                   "Prefix files that could not be written or were not as written.",
                   stats.n_prefix_file_errors),
      CacheInfo(stats, make),
      make.Gauge("lowkey:cache_used_bytes", "Cache that requests hold now.", used),
      make.Gauge("lowkey:cache_prefix_bytes", "Cache held for later prompts, given up when needed.",
                 stats.cache_bytes_prefix),
      make.Gauge("lowkey:cache_limit_bytes", "All of the cache.", total),
  };
}

}  // namespace

Labels LabelsOf(const std::string& metric, const std::string& model_name) {
  Labels labels = {{"model_name", model_name}};
  if (metric.starts_with("vllm:")) labels.insert({"engine", "0"});
  return labels;
}

prometheus::Histogram::BucketBoundaries TokenBounds(int64_t max) {
  prometheus::Histogram::BucketBoundaries bounds;
  for (int64_t power = 1; power <= max; power *= 10) {
    for (const int64_t factor : {1, 2, 5}) {
      if (factor * power <= max) bounds.push_back(static_cast<double>(factor * power));
    }
  }
  return bounds;
}

MetricFamily CounterFamily(const std::string& name, const std::string& help, double value,
                           const Labels& labels) {
  return {name, help, MetricType::Counter, {Sample(value, labels)}};
}

MetricFamily GaugeFamily(const std::string& name, const std::string& help, double value,
                         const Labels& labels) {
  return {name, help, MetricType::Gauge, {Sample(value, labels)}};
}

std::vector<MetricFamily> EngineFamilies(const EngineStats& stats, const std::string& model_name) {
  const FamilyMaker make(model_name);
  std::vector<MetricFamily> families = CacheFamilies(stats, make);
  families.insert(
      families.end(),
      {make.Gauge("vllm:num_requests_running", "Requests being computed.",
                  stats.n_running_requests),
       make.Gauge("vllm:num_requests_waiting", "Requests admitted and not begun.",
                  stats.n_waiting_requests),
       make.Counter("vllm:prompt_tokens_total",
                    "Prompt tokens, computed or found in the prefix cache.", stats.n_prompt_tokens),
       make.Counter("vllm:generation_tokens_total", "Tokens generated.", stats.n_generated_tokens),
       make.Counter("vllm:num_preemptions_total",
                    "Requests that gave their cache up and computed it again.",
                    stats.n_preemptions),
       make.Counter("vllm:spec_decode_num_draft_tokens_total", "Tokens drafted.",
                    stats.n_drafted_tokens),
       make.Counter("vllm:spec_decode_num_accepted_tokens_total",
                    "Drafted tokens that became output.", stats.n_accepted_tokens),
       StepRows(stats, make), Rejections(stats, make),
       make.Gauge("lowkey:weight_bytes", "Weights in memory.", stats.weight_bytes),
       make.Counter("lowkey:steps_total", "Forward passes.", stats.n_steps),
       make.Counter("lowkey:mask_waits_total",
                    "Steps that choices sat out because their mask was not ready.",
                    stats.n_mask_waits),
       make.Counter("lowkey:mask_seconds_total", "Time that steps waited for masks.",
                    absl::ToDoubleSeconds(stats.waited_for_masks))});
  Labels info = make.labels("lowkey:build_info");
  info.insert({{"version", std::string(kVersion)},
               {"dtype", stats.dtype},
               {"instruction_set", stats.processor}});
  families.push_back(
      GaugeFamily("lowkey:build_info", "Always 1; what runs is in the labels.", 1, info));
  return families;
}

std::vector<MetricFamily> NetworkFamilies(const NetworkStats& stats,
                                          const std::string& model_name) {
  const FamilyMaker make(model_name);
  MetricFamily connections = {
      "lowkey:connections", "Connections now, by protocol.", MetricType::Gauge, {}};
  const Labels labels = make.labels(connections.name);
  for (const auto& [protocol, n] :
       {std::pair("http1", stats.n_http1), std::pair("http2", stats.n_http2),
        std::pair("undecided", stats.n_undecided)}) {
    connections.metric.push_back(
        Sample(static_cast<double>(n), With(labels, "protocol", protocol)));
  }
  std::vector<MetricFamily> families = {
      std::move(connections),
      make.Counter("lowkey:connections_total", "Connections since the start.", stats.n_opened),
      make.Gauge("lowkey:streams", "Requests that are not answered to the end.", stats.n_streams),
      make.Gauge("lowkey:body_bytes", "Memory of requests that come or wait to be read.",
                 stats.body_bytes),
      make.Gauge("lowkey:answer_bytes", "Memory of answers that wait for their readers.",
                 stats.answer_bytes),
      make.Gauge("lowkey:worker_queue", "Messages that wait for a worker.", stats.n_waiting_work),
  };
  if (stats.certificate_end.has_value()) {
    families.push_back(
        make.Gauge("lowkey:tls_certificate_expires_seconds",
                   "When the certificate in use expires, as Unix time.",
                   absl::ToDoubleSeconds(*stats.certificate_end - absl::UnixEpoch())));
  }
  return families;
}

}  // namespace lowkey

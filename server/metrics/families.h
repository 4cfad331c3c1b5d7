#ifndef LOWKEY_SERVER_METRICS_FAMILIES_H_
#define LOWKEY_SERVER_METRICS_FAMILIES_H_

#include <prometheus/histogram.h>
#include <prometheus/labels.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/engine.h"
#include "server/metrics/network_stats.h"

namespace lowkey {

// The labels of a metric's samples: the model's name, and under vLLM's names the engine, which is
// always "0".
prometheus::Labels LabelsOf(const std::string& metric, const std::string& model_name);

// Returns 1, 2, 5, 10, 20, ... up to `max`: vLLM's bounds of histograms of tokens.
prometheus::Histogram::BucketBoundaries TokenBounds(int64_t max);

// Return the engine's and the network's statistics in Prometheus' form.
std::vector<prometheus::MetricFamily> EngineFamilies(const EngineStats& stats,
                                                     const std::string& model_name);
std::vector<prometheus::MetricFamily> NetworkFamilies(const NetworkStats& stats,
                                                      const std::string& model_name);

prometheus::MetricFamily CounterFamily(const std::string& name, const std::string& help,
                                       double value, const prometheus::Labels& labels);
prometheus::MetricFamily GaugeFamily(const std::string& name, const std::string& help, double value,
                                     const prometheus::Labels& labels);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_METRICS_FAMILIES_H_

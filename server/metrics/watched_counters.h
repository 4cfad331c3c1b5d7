#ifndef LOWKEY_SERVER_METRICS_WATCHED_COUNTERS_H_
#define LOWKEY_SERVER_METRICS_WATCHED_COUNTERS_H_

namespace lowkey {

// Names of counters that the log and the traces count by themselves, for Metrics::WatchCounter.
inline constexpr char kDroppedLogLines[] = "lowkey:log_lines_dropped_total";
inline constexpr char kExportedSpans[] = "lowkey:spans_exported_total";
inline constexpr char kDroppedSpans[] = "lowkey:spans_dropped_total";

}  // namespace lowkey

#endif  // LOWKEY_SERVER_METRICS_WATCHED_COUNTERS_H_

#include "server/trace/otlp_exporter.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"

namespace lowkey {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// The answers after which OTLP lets a client send the same message again.
bool IsRetryable(int code) { return code == 429 || code == 502 || code == 503 || code == 504; }

// Returns the number of spans that an answer of success says were refused all the same.
int64_t NumRejected(const std::string& body) {
  const auto json = nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return 0;
  const auto partial = json.find("partialSuccess");
  if (partial == json.end() || !partial->is_object()) return 0;
  const auto rejected = partial->find("rejectedSpans");
  if (rejected == partial->end()) return 0;
  int64_t n = 0;
  if (rejected->is_number_integer()) n = rejected->get<int64_t>();
  if (rejected->is_string() && !absl::SimpleAtoi(rejected->get<std::string>(), &n)) n = 0;
  return n;
}

int64_t NumSpans(const std::vector<TracedRequest>& batch) {
  size_t n = 0;
  for (const TracedRequest& request : batch) n += NumSpans(request);
  return static_cast<int64_t>(n);
}

}  // namespace

std::optional<std::string> OtlpTracesUrl(const std::string& endpoint) {
  const size_t scheme = endpoint.starts_with("http://")    ? 7
                        : endpoint.starts_with("https://") ? 8
                                                           : 0;
  if (scheme == 0) return std::nullopt;
  const auto is_bad = [](char c) {
    return c <= ' ' || c > '~' ||
           std::string_view("@?#\"<>\\^`{|}").find(c) != std::string_view::npos;
  };
  if (std::any_of(endpoint.begin(), endpoint.end(), is_bad)) return std::nullopt;
  const size_t path = endpoint.find('/', scheme);
  if (path == scheme || endpoint.size() == scheme) return std::nullopt;
  if (path == std::string::npos) return absl::StrCat(endpoint, "/v1/traces");
  if (path + 1 == endpoint.size()) return absl::StrCat(endpoint, "v1/traces");
  return endpoint;
}

TraceResource ThisProcess(const std::string& version) {
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  const SpanId instance = StartTrace(std::nullopt, 0).span_id;
  return {{{"service.name", std::string("lowkey")},
           {"service.version", version},
           {"service.instance.id", HexOf(instance)},
           {"host.name", std::string(host)},
           {"process.pid", int64_t{getpid()}}},
          "lowkey",
          version};
}

OtlpExporter::OtlpExporter(OtlpOptions options)
    : options_(std::move(options)),
      end_ns_(kNever),
      poster_(options_.url, options_.post_timeout,
              [this] { return absl::ToUnixNanos(SteadyNow()) > end_ns_; }),
      thread_([this] { Run(); }) {}

OtlpExporter::~OtlpExporter() {
  end_ns_ = absl::ToUnixNanos(SteadyNow() + options_.last_flush);
  {
    absl::MutexLock lock(&mutex_);
    is_closing_ = true;
  }
  thread_.join();
}

void OtlpExporter::Add(TracedRequest request) {
  if (!request.trace.is_sampled) return;
  const auto n_spans = static_cast<int64_t>(NumSpans(request));
  bool is_queued = false;
  RunContained([&] {
    absl::MutexLock lock(&mutex_);
    if (queue_.size() >= options_.max_queued || is_closing_) return;
    queue_.push_back(std::move(request));
    is_queued = true;
  });
  if (!is_queued) n_dropped_ += n_spans;
}

void OtlpExporter::Run() {
  while (true) {
    std::vector<TracedRequest> batch;
    RunInTheEnd([&] { batch = TakeBatch(); });
    if (batch.empty()) return;
    if (!RunContained([&] { Send(batch); })) n_dropped_ += NumSpans(batch);
  }
}

// Returns the next requests; none once the exporter is closing and its queue is empty.
std::vector<TracedRequest> OtlpExporter::TakeBatch() {
  std::vector<TracedRequest> batch;
  batch.reserve(options_.max_batch);  // nothing below throws
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &OtlpExporter::HasWork));
  mutex_.AwaitWithTimeout(absl::Condition(this, &OtlpExporter::HasBatch), options_.batch_time);
  while (!queue_.empty() && batch.size() < options_.max_batch) {
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return batch;
}

void OtlpExporter::Send(const std::vector<TracedRequest>& batch) {
  std::vector<Span> spans;
  for (const TracedRequest& request : batch) {
    for (Span& span : SpansOf(request)) spans.push_back(std::move(span));
  }
  const std::string json = OtlpJson(options_.resource, spans);
  const auto n_spans = static_cast<int64_t>(spans.size());
  const absl::Time give_up = SteadyNow() + options_.retry_time;
  absl::Duration pause = options_.first_retry;
  while (absl::ToUnixNanos(SteadyNow()) <= end_ns_) {
    const absl::StatusOr<HttpPostAnswer> answer = poster_.Post(json);
    if (IsSettled(answer, n_spans)) return;
    const absl::Duration asked =
        answer.ok() ? answer->retry_after.value_or(absl::ZeroDuration()) : absl::ZeroDuration();
    const absl::Duration wait = std::max(pause, std::min(asked, options_.longest_retry));
    if (SteadyNow() + wait > give_up || !WaitToRetry(wait)) break;
    pause = std::min(2 * pause, options_.longest_retry);
  }
  n_dropped_ += n_spans;
}

bool OtlpExporter::IsSettled(const absl::StatusOr<HttpPostAnswer>& answer, int64_t n_spans) {
  if (!answer.ok()) {
    NoteOutcome(std::string(answer.status().message()));
    return false;
  }
  if (answer->code >= 200 && answer->code < 300) {
    const int64_t n_rejected = std::clamp<int64_t>(NumRejected(answer->body), 0, n_spans);
    n_exported_ += n_spans - n_rejected;
    n_dropped_ += n_rejected;
    NoteOutcome("");
    return true;
  }
  NoteOutcome(absl::StrCat("HTTP status ", answer->code));
  if (IsRetryable(answer->code)) return false;
  n_dropped_ += n_spans;
  return true;
}

void OtlpExporter::NoteOutcome(const std::string& failure) {
  if (failure.empty() != is_failing_) return;
  is_failing_ = !failure.empty();
  if (options_.log == nullptr) return;
  RunContained([&] {
    options_.log(absl::StrCat("otlp: ", options_.url, ": ",
                              is_failing_ ? failure : std::string("takes spans again")));
  });
}

// Returns false once the exporter is closing: there is no time to send again.
bool OtlpExporter::WaitToRetry(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  return !mutex_.AwaitWithTimeout(absl::Condition(this, &OtlpExporter::IsClosing), time);
}

}  // namespace lowkey

#include "client/load/sse_client.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <list>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/load/connection.h"
#include "client/load/sse_reader.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr int kPollMs = 50;

json ToJson(const AttentionChoice& attention) {
  json object = json::object();
  if (attention.mechanism.has_value()) object["mechanism"] = *attention.mechanism;
  for (const auto& [name, value] : attention.options) {
    std::visit([&object, &name = name](const auto& option) { object[name] = option; }, value);
  }
  if (attention.objective.has_value()) object["objective"] = *attention.objective;
  if (!attention.allowed.empty()) object["allowed"] = attention.allowed;
  if (attention.allow_approximate.has_value()) {
    object["allow_approximate"] = *attention.allow_approximate;
  }
  if (attention.max_perplexity_ratio.has_value()) {
    object["max_perplexity_ratio"] = *attention.max_perplexity_ratio;
  }
  return object;
}

std::string BodyOf(const GenerationRequest& request, const std::string& model) {
  json body = {{"model", model},
               {"prompt", std::get<TokenList>(request.input)},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"ignore_eos", request.ignore_eos},
               {"temperature", request.sampling.temperature.value_or(0.0f)}};
  const SamplingChoice& sampling = request.sampling;
  if (request.max_new_tokens.has_value()) body["max_tokens"] = *request.max_new_tokens;
  if (sampling.seed.has_value()) body["seed"] = *sampling.seed;
  if (sampling.top_k.has_value()) body["top_k"] = *sampling.top_k;
  if (sampling.top_p.has_value()) body["top_p"] = *sampling.top_p;
  if (sampling.min_p.has_value()) body["min_p"] = *sampling.min_p;
  const auto put = [&body](const char* name, const std::optional<float>& value) {
    if (value.has_value()) body[name] = *value;
  };
  put("repetition_penalty", sampling.repetition_penalty);
  put("presence_penalty", sampling.presence_penalty);
  put("frequency_penalty", sampling.frequency_penalty);
  for (const auto& [id, bias] : sampling.logit_bias) body["logit_bias"][std::to_string(id)] = bias;
  if (const json attention = ToJson(request.attention); !attention.empty()) {
    body["lowkey"]["attention"] = attention;
  }
  return body.dump();
}

absl::StatusCode CodeOf(int http_status) {
  switch (http_status) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 503:
      return absl::StatusCode::kUnavailable;
    case 504:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return http_status < 500 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
  }
}

// One stream of events. It belongs to the client's thread.
class Stream {
 public:
  Stream(std::string bytes, absl::Time deadline, std::atomic<int64_t>& n_tokens,
         std::function<void(StreamRecord)> on_end)
      : unsent_(std::move(bytes)),
        deadline_(deadline),
        n_tokens_(n_tokens),
        on_end_(std::move(on_end)),
        reader_([this](std::string_view data) { OnEvent(data); }) {
    record_.started_s = MonotonicSeconds();
  }

  void Take(std::unique_ptr<LoadConnection> connection) { connection_ = std::move(connection); }
  // Gives the connection away.
  std::unique_ptr<LoadConnection> Leave() { return std::move(connection_); }
  pollfd Wanted() const { return connection_->Wanted(); }
  absl::Time deadline() const { return deadline_; }

  // Sends and reads what can be. True: the answer is whole, or the status says why not.
  bool Advance(absl::Status& status) {
    while (!unsent_.empty()) {
      const absl::StatusOr<size_t> n = connection_->Write(unsent_);
      if (!n.ok() || *n == 0) return IsOver(n, status);
      unsent_.erase(0, *n);
    }
    char buffer[16384];
    while (true) {
      const absl::StatusOr<size_t> n = connection_->Read(buffer, sizeof(buffer));
      if (!n.ok() || *n == 0) return IsOver(n, status);
      status = reader_.Add(std::string_view(buffer, *n));
      if (!status.ok() || reader_.is_done()) return true;
    }
  }

  void End(absl::Status status) {
    record_.ended_s = MonotonicSeconds();
    if (status.ok() && reader_.http_status() != 200) {
      status = absl::Status(CodeOf(reader_.http_status()), reader_.document().substr(0, 512));
    } else if (status.ok() && !error_.empty()) {
      status = absl::InternalError(error_);
    } else if (status.ok() && !has_final_) {
      status = absl::InternalError("the stream ended without its last event");
    }
    record_.status = std::move(status);
    on_end_(std::move(record_));
  }

 private:
  static bool IsOver(const absl::StatusOr<size_t>& n, absl::Status& status) {
    status = n.status();
    return !status.ok();
  }

  // Only the events that end a stream are parsed: the others are one token each, but where a token
  // adds no text and so has no event (AddUsage counts it).
  void OnEvent(std::string_view data) {
    if (data == "[DONE]") {
      has_final_ = true;
    } else if (data.rfind("{\"error\"", 0) == 0) {
      error_ = std::string(data.substr(0, 512));
    } else if (data.find("\"choices\":[]") != std::string_view::npos) {
      AddUsage(json::parse(data, nullptr, false));
    } else {
      AddToken();
      if (data.find("\"lowkey\":{") != std::string_view::npos) {
        AddReport(json::parse(data, nullptr, false));
      }
    }
  }

  void AddToken() {
    record_.AddTokens(1, MonotonicSeconds());
    ++n_tokens_;
  }

  // A slow reader gets several tokens in one event.
  void AddUsage(const json& event) {
    const int64_t n = event.is_object() && event.contains("usage")
                          ? event["usage"].value("completion_tokens", int64_t{0})
                          : 0;
    n_tokens_ += n - record_.n_output_tokens;
    record_.n_output_tokens = n;
  }

  void AddReport(const json& event) {
    if (!event.is_object()) return;
    const json& report = event["lowkey"];
    const json timings = report.value("timings", json::object());
    for (const char* name : {"queue_us", "prefill_us", "decode_us"}) {
      record_.engine_s += 1e-6 * timings.value(name, 0.0);
    }
    record_.peak_cache_bytes =
        report.value("attention", json::object()).value("peak_cache_bytes", int64_t{0});
  }

  std::unique_ptr<LoadConnection> connection_;
  std::string unsent_;
  const absl::Time deadline_;
  std::atomic<int64_t>& n_tokens_;  // of all streams
  const std::function<void(StreamRecord)> on_end_;
  SseReader reader_;
  StreamRecord record_;
  bool has_final_ = false;
  std::string error_;
};

}  // namespace

class SseClient::Impl {
 public:
  Impl(const ConnectOptions& options, std::string model, std::unique_ptr<Connector> connector)
      : connector_(std::move(connector)),
        model_(std::move(model)),
        head_(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: ", options.address,
                           "\r\nContent-Type: application/json\r\n",
                           options.token.has_value()
                               ? absl::StrCat("Authorization: Bearer ", *options.token, "\r\n")
                               : "",
                           "Content-Length: ")),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        thread_([this] { Run(); }) {}

  ~Impl() {
    is_ending_ = true;
    Wake();
    thread_.join();
    close(wake_);
  }

  void Start(const GenerationRequest& request, std::function<void(StreamRecord)> on_end) {
    const std::string body = BodyOf(request, model_);
    auto stream = std::make_unique<Stream>(absl::StrCat(head_, body.size(), "\r\n\r\n", body),
                                           request.deadline, n_tokens_, std::move(on_end));
    {
      absl::MutexLock lock(&mutex_);
      started_.push_back(std::move(stream));
    }
    Wake();
  }

  void Cancel() {
    is_cancelled_ = true;
    Wake();
  }

  int64_t n_tokens() const { return n_tokens_; }

 private:
  using Streams = std::list<std::unique_ptr<Stream>>;

  void Wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wake_, &one, sizeof(one));
  }

  // A connection that is open or begins to be; null: the system refuses.
  std::unique_ptr<LoadConnection> Open() {
    if (idle_.empty()) return connector_->Open();
    std::unique_ptr<LoadConnection> connection = std::move(idle_.back());
    idle_.pop_back();
    // The server may have closed it meanwhile.
    return connection->TakesAnother() ? std::move(connection) : connector_->Open();
  }

  void TakeStarted(Streams& streams) {
    Streams started;
    {
      absl::MutexLock lock(&mutex_);
      started.swap(started_);
    }
    for (std::unique_ptr<Stream>& stream : started) {
      std::unique_ptr<LoadConnection> connection = Open();
      if (connection == nullptr) {
        stream->End(absl::UnavailableError(absl::StrCat("connect: ", std::strerror(errno))));
        continue;
      }
      stream->Take(std::move(connection));
      streams.push_back(std::move(stream));
    }
  }

  void Run() {
    // OpenSSL writes to sockets without MSG_NOSIGNAL.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    Streams streams;
    std::vector<pollfd> wanted;
    while (!is_ending_ || !streams.empty()) {
      TakeStarted(streams);
      wanted.assign(1, {wake_, POLLIN, 0});
      for (const auto& stream : streams) wanted.push_back(stream->Wanted());
      poll(wanted.data(), wanted.size(), kPollMs);
      uint64_t n_wakes = 0;
      [[maybe_unused]] const ssize_t n = read(wake_, &n_wakes, sizeof(n_wakes));
      size_t i = 0;
      for (auto it = streams.begin(); it != streams.end();) {
        const bool has_news = wanted[++i].revents != 0;
        const auto next = std::next(it);
        if (IsOver(**it, has_news)) streams.erase(it);
        it = next;
      }
    }
  }

  bool IsOver(Stream& stream, bool has_news) {
    absl::Status status;
    if (is_cancelled_) {
      stream.End(absl::CancelledError("cancelled"));
      return true;
    }
    if (has_news && stream.Advance(status)) {
      if (status.ok()) idle_.push_back(stream.Leave());
      stream.End(std::move(status));
      return true;
    }
    if (SteadyNow() < stream.deadline()) return false;
    stream.End(absl::DeadlineExceededError("deadline exceeded"));
    return true;
  }

  const std::unique_ptr<const Connector> connector_;
  const std::string model_, head_;
  const int wake_;
  std::atomic<int64_t> n_tokens_{0};
  std::atomic<bool> is_cancelled_{false}, is_ending_{false};
  absl::Mutex mutex_;
  Streams started_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<LoadConnection>> idle_;  // belongs to the thread
  std::thread thread_;
};

SseClient::SseClient(std::unique_ptr<Impl> impl, LoadTarget& other)
    : impl_(std::move(impl)), other_(other) {}
SseClient::~SseClient() = default;

absl::StatusOr<std::unique_ptr<SseClient>> SseClient::Connect(const ConnectOptions& options,
                                                              std::string model,
                                                              LoadTarget& other) {
  LK_ASSIGN_OR_RETURN(std::unique_ptr<Connector> connector, Connector::Make(options));
  auto impl = std::make_unique<Impl>(options, std::move(model), std::move(connector));
  return std::unique_ptr<SseClient>(new SseClient(std::move(impl), other));
}

void SseClient::Start(const GenerationRequest& request, std::function<void(StreamRecord)> on_end) {
  impl_->Start(request, std::move(on_end));
}
void SseClient::Cancel() { impl_->Cancel(); }
int64_t SseClient::n_tokens() const { return impl_->n_tokens(); }

}  // namespace lowkey

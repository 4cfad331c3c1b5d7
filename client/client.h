#ifndef LOWKEY_CLIENT_CLIENT_H_
#define LOWKEY_CLIENT_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/channel.h"
#include "server/request.h"

namespace lowkey {

// What a client's terminal shows of a finished generation.
struct GenerationSummary {
  std::string request_id, model;
  std::vector<std::string> finish_reasons;  // one per choice: "stop_token", "length", ...
  int64_t n_prompt_tokens = 0, n_cached_tokens = 0, n_generated_tokens = 0;
  int64_t queue_us = 0, prefill_us = 0, decode_us = 0, ttft_us = 0;
  uint64_t seed = 0;
  std::string mechanism, mechanism_reason;
  std::optional<int32_t> rank;
  int32_t n_compressed_blocks = 0;
  int64_t cache_bytes = 0, peak_cache_bytes = 0, standard_cache_bytes = 0;
  bool is_approximate = false;
};

// Text of one choice as it comes, from the thread that called.
using TextCallback = std::function<void(int32_t choice, const std::string& text)>;

// A client of one server. Thread-safe. Nothing is sent before the first call. Errors are those that
// the server gave; UNAVAILABLE, saying where and what to do, when there is no server.
class Client {
 public:
  explicit Client(const ConnectOptions& options);
  explicit Client(const std::string& address) : Client(ConnectOptions{address}) {}
  ~Client();

  // Streams to `on_text` until the end. request.deadline goes to the server.
  absl::StatusOr<GenerationSummary> GenerateStream(const GenerationRequest& request,
                                                   const TextCallback& on_text);

  // The GenerateResponse as one line of JSON with the proto's field names.
  absl::StatusOr<std::string> GenerateJson(const GenerationRequest& request);

  // Ends the calls that run with CANCELLED, also from another thread.
  void Cancel();

  // grpc.health.v1: OK when SERVING. UNAVAILABLE for any other answer, NOT_FOUND for a service
  // that the server does not know. `service` empty: the server as a whole.
  absl::Status CheckHealth(const std::string& service, absl::Time deadline);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_CLIENT_H_

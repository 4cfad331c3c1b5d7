#ifndef LOWKEY_CLIENT_CLIENT_H_
#define LOWKEY_CLIENT_CLIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/channel.h"
#include "server/request.h"

namespace lowkey {

// The report of a finished generation, as a terminal shows it.
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

// Receives the text of one choice as it comes, on the thread that called.
using TextCallback = std::function<void(int32_t choice, const std::string& text)>;

// A generated token of one choice, when log-probabilities are asked for.
struct LogprobReport {
  int32_t choice = 0, token = 0;
  std::string text;  // as far as the server told it
  float logprob = 0;
  std::vector<std::pair<std::string, float>> alternatives;  // most likely first
};
using LogprobCallback = std::function<void(LogprobReport)>;

// Holds the facts about the served model that a conversation needs.
struct ChatModel {
  std::string name;
  std::string refusal;  // why it takes no conversations; empty: it does
  int32_t context_tokens = 0;
};

// A client talks to one server. Thread-safe. It sends nothing before the first call. Errors are the
// server's; UNAVAILABLE, which says where and what to do, if no server answers.
class Client {
 public:
  explicit Client(const ConnectOptions& options);
  explicit Client(const std::string& address) : Client(ConnectOptions{address}) {}
  ~Client();

  // Streams to the callbacks until the end. request.deadline goes to the server.
  absl::StatusOr<GenerationSummary> GenerateStream(const GenerationRequest& request,
                                                   const TextCallback& on_text,
                                                   const LogprobCallback& on_logprob = nullptr);

  // Describes the served model.
  absl::StatusOr<ChatModel> GetModel();

  // Counts the tokens of a conversation's prompt. `request.input` must be a conversation.
  absl::StatusOr<int32_t> CountPromptTokens(const GenerationRequest& request);

  // Returns the GenerateResponse as one line of JSON with the proto's field names. A token without
  // alternatives has no field for them.
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

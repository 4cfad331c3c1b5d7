#ifndef LOWKEY_CLIENT_LOAD_LOAD_TARGET_H_
#define LOWKEY_CLIENT_LOAD_LOAD_TARGET_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/request/request.h"

namespace lowkey {

// Returns the time of the clock that the load generator measures with.
inline double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One stream as its client saw it. Times are MonotonicSeconds.
struct StreamRecord {
  absl::Status status = absl::OkStatus();
  double started_s = 0, ended_s = 0;
  std::optional<double> first_token_s = {};
  std::vector<float> gaps_ms = {};  // from each message with tokens to the next
  int64_t n_output_tokens = 0;
  // The stream's final event sets these.
  double engine_s = 0;  // queue, prefill and decode by the server's own account
  int64_t peak_cache_bytes = 0;
  double last_token_s = 0;  // 0 before the first message with tokens

  // Counts the tokens of a message that came at `now_s`, and its gap to the message before it.
  void AddTokens(int64_t n_tokens, double now_s) {
    if (first_token_s.has_value()) {
      gaps_ms.push_back(static_cast<float>(1e3 * (now_s - last_token_s)));
    } else {
      first_token_s = now_s;
    }
    last_token_s = now_s;
    n_output_tokens += n_tokens;
  }
};

// The load that a server reports.
struct ServerLoad {
  int64_t n_running = 0, n_waiting = 0;
  int64_t cache_bytes_used = 0, cache_bytes_total = 0;
};

// A server to put under load. Thread-safe.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;

  // Begins a generation and returns at once. `on_end` is called exactly once, from any thread, when
  // the stream has ended; the target may be destroyed from then on.
  virtual void Start(const GenerationRequest& request,
                     std::function<void(StreamRecord)> on_end) = 0;

  // Ends every call with CANCELLED, those that are started later too.
  virtual void Cancel() = 0;

  // Returns nullopt if the server does not answer within a second.
  virtual std::optional<ServerLoad> Poll() = 0;

  // Returns the tokens that all streams have brought so far.
  virtual int64_t n_tokens() const = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_LOAD_TARGET_H_

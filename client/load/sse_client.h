#ifndef LOWKEY_CLIENT_LOAD_SSE_CLIENT_H_
#define LOWKEY_CLIENT_LOAD_SSE_CLIENT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/channel.h"
#include "client/load/load_target.h"

namespace lowkey {

// A server under load over OpenAI's API: POST /v1/completions with a stream of events, HTTP/1.1 in
// clear or under TLS, one connection per stream that runs. One thread serves all streams. All
// streams must have ended when it is destroyed.
class SseClient final : public LoadTarget {
 public:
  // `model` is the id in every request. The server's load is asked of `other`, which must outlive
  // this. Errors are those of Connector::Make.
  static absl::StatusOr<std::unique_ptr<SseClient>> Connect(const ConnectOptions& options,
                                                            std::string model, LoadTarget& other);
  ~SseClient() override;

  // The request's input must be token ids.
  void Start(const GenerationRequest& request, std::function<void(StreamRecord)> on_end) override;
  void Cancel() override;
  std::optional<ServerLoad> Poll() override { return other_.Poll(); }
  int64_t n_tokens() const override;

 private:
  class Impl;

  SseClient(std::unique_ptr<Impl> impl, LoadTarget& other);

  const std::unique_ptr<Impl> impl_;
  LoadTarget& other_;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_SSE_CLIENT_H_

#ifndef LOWKEY_CLIENT_CLIENT_H_
#define LOWKEY_CLIENT_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/channel.h"
#include "lowkey/v1/generation.pb.h"
#include "server/request/request.h"

namespace lowkey {

// Receives new output of one choice as it comes, on the thread that called.
using DeltaCallback = std::function<void(const v1::ChoiceDelta&)>;

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

  // Streams to the callback until the end, and returns the report of the generation.
  // request.deadline goes to the server.
  absl::StatusOr<v1::FinalEvent> GenerateStream(const GenerationRequest& request,
                                                const DeltaCallback& on_delta);

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

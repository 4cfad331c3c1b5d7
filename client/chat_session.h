#ifndef LOWKEY_CLIENT_CHAT_SESSION_H_
#define LOWKEY_CLIENT_CHAT_SESSION_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/request/request.h"

namespace lowkey {

// Holds a conversation in the terminal: the messages so far and the options of the next request.
class ChatSession {
 public:
  // `request` holds everything but the input. An empty `system` is no system message.
  ChatSession(GenerationRequest request, std::string system);

  // Returns whether a line is a command ("/help") and no message. A message that begins with a
  // slash is typed with two.
  static bool IsCommand(std::string_view line);

  // Runs a command and returns what to tell the user. INVALID_ARGUMENT names the command or option,
  // and changes nothing.
  absl::StatusOr<std::string> RunCommand(const std::string& line);
  bool is_over() const { return is_over_; }

  // Returns the request for the answer to `line`, with all messages before it.
  GenerationRequest Ask(const std::string& line) const;
  // Adds `line` and its answer to the conversation.
  void Keep(const std::string& line, const std::string& answer);

 private:
  absl::StatusOr<std::string> SetAttention(const std::vector<std::string>& arguments);

  GenerationRequest request_;
  std::string system_;
  std::vector<ChatMessage> history_;
  bool is_over_ = false;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_CHAT_SESSION_H_

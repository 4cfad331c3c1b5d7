#ifndef LOWKEY_CLIENT_CHAT_SESSION_H_
#define LOWKEY_CLIENT_CHAT_SESSION_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/request.h"

namespace lowkey {

// A conversation as a terminal holds it: the messages so far, and how the next answer is asked for.
class ChatSession {
 public:
  // `request`: everything but its input. `system`: the system message; empty: none.
  ChatSession(GenerationRequest request, std::string system);

  // Whether a line is a command ("/help"), not a message. A message that begins with a slash is
  // typed with two.
  static bool IsCommand(std::string_view line);

  // Runs a command and says what it did. INVALID_ARGUMENT, naming the command or option: nothing
  // has changed then.
  absl::StatusOr<std::string> RunCommand(const std::string& line);
  bool is_over() const { return is_over_; }

  // The request for the answer to `line`, with all before it.
  GenerationRequest Ask(const std::string& line) const;
  // The conversation goes on from this answer to `line`.
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

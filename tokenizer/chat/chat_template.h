#ifndef LOWKEY_TOKENIZER_CHAT_CHAT_TEMPLATE_H_
#define LOWKEY_TOKENIZER_CHAT_CHAT_TEMPLATE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tokenizer/chat/jinja/syntax.h"
#include "tokenizer/chat/values/value.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// A function that the model asked for.
struct ToolCall {
  std::string id = {};  // empty: none
  std::string name = {};
  std::string arguments_json = {};  // any JSON; usually an object
};

struct ChatMessage {
  std::string role = {};  // the template knows which; not the user's text
  std::optional<std::string> content = std::nullopt;
  std::optional<std::string> name = std::nullopt;
  std::optional<std::string> tool_call_id = std::nullopt;
  std::vector<ToolCall> tool_calls = {};
  std::optional<std::string> reasoning_content = std::nullopt;  // what an assistant thought before
};

struct Conversation {
  std::vector<ChatMessage> messages = {};
  std::string tools_json = {};      // a JSON array; empty: no tools
  std::string variables_json = {};  // a JSON object of further variables; empty: none
  bool add_generation_prompt = true;
};

// The rest of what a template sees.
struct TemplateContext {
  std::optional<std::string> bos_token = std::nullopt;
  std::optional<std::string> eos_token = std::nullopt;
  absl::Time now = absl::UnixEpoch();
  absl::TimeZone time_zone = absl::UTCTimeZone();
};

struct RenderedChat {
  std::string text;
  // The bytes that came from messages, tools or variables, in order and without overlaps: they are
  // text whatever they spell, never a control piece.
  std::vector<ByteRange> user_ranges;
};

// A Hugging Face chat template: the subset of Jinja that they use, with the environment that
// transformers gives them. The template and what it is given may be hostile: steps, bytes, depth
// and output are bounded. Immutable, cheap to copy, safe to share between threads.
class ChatTemplate {
 public:
  // INVALID_ARGUMENT, naming line and construct: malformed, or more of Jinja than is supported.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view source);

  // All strings must be UTF-8. INVALID_ARGUMENT: the template refuses the messages
  // (raise_exception) or cannot work with them, naming the line; JSON that is malformed, naming its
  // field. RESOURCE_EXHAUSTED: a limit was passed.
  absl::StatusOr<RenderedChat> Render(const Conversation& conversation,
                                      const TemplateContext& context = {},
                                      const jinja::Limits& limits = {}) const;

  // The text that was parsed.
  const std::string& source() const { return *source_; }
  // Returns whether the template has the name `tools`: one without it writes the same prompt with
  // tools as without them.
  bool names_tools() const { return names_tools_; }

 private:
  ChatTemplate(std::shared_ptr<const jinja::Body> body, std::string_view source, bool names_tools)
      : body_(std::move(body)),
        source_(std::make_shared<const std::string>(source)),
        names_tools_(names_tools) {}

  std::shared_ptr<const jinja::Body> body_;
  std::shared_ptr<const std::string> source_;
  bool names_tools_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_CHAT_CHAT_TEMPLATE_H_

#ifndef LOWKEY_SERVER_TEXT_CHAT_H_
#define LOWKEY_SERVER_TEXT_CHAT_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/request/request.h"
#include "tokenizer/chat/template_files.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

struct ChatPrompt {
  std::string text;  // the template's output
  TokenList tokens;
};

struct PromptLimits {
  size_t max_bytes = Tokenizer::kMaxTextBytes;  // of the template's output
  Interrupt* interrupt = nullptr;               // see EncodeOptions
};

// Returns a conversation as the model's own template writes it. Errors are those of MakeChatPrompt.
absl::StatusOr<RenderedChat> RenderChat(const Conversation& conversation,
                                        const ChatTemplates& templates, const Tokenizer& tokenizer,
                                        size_t max_bytes = Tokenizer::kMaxTextBytes);

// Returns a conversation as the model's own template writes it, and its tokens: control pieces
// where the template spells them, text where messages do, no bos but the template's.
// INVALID_ARGUMENT: a field out of bounds ("chat.messages[2].role: ..."), or messages that the
// template refuses. FAILED_PRECONDITION: the model has no usable template. OUT_OF_RANGE: the
// template's output is over max_bytes. Also the interrupt's error.
absl::StatusOr<ChatPrompt> MakeChatPrompt(const Conversation& conversation,
                                          const ChatTemplates& templates,
                                          const Tokenizer& tokenizer,
                                          const PromptLimits& limits = {});

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TEXT_CHAT_H_

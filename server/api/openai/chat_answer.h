#ifndef LOWKEY_SERVER_API_OPENAI_CHAT_ANSWER_H_
#define LOWKEY_SERVER_API_OPENAI_CHAT_ANSWER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/openai/answer.h"
#include "server/api/openai/requests/answer_plan.h"
#include "server/api/openai/tools/tool_parser.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// The answer of /v1/chat/completions.
class ChatAnswer final : public Answer {
 public:
  // The tokenizer must outlive the answer.
  ChatAnswer(AnswerForm form, const ChatParsing& parsing, const Tokenizer& tokenizer);

 private:
  struct Choice {
    bool is_begun = false;  // its first chunk, which has the role, was written
    bool has_calls = false;
    std::unique_ptr<ToolParser> parser = nullptr;  // null: all text is content
    std::string reasoning = {};
  };
  // What a text says once calls and reasoning are taken out of it.
  struct Parsed {
    std::string content = {}, reasoning = {};
    std::vector<ToolEvent> calls = {};  // kCallBegin and kArguments
  };

  // `finish` is null unless the text is the choice's last.
  Parsed Parse(size_t index, const std::string& text, const Finish* finish);
  bool WriteChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                  JsonWriter& writer) override;
  void WriteChoice(size_t index, const v1::ChoiceDelta& choice, const v1::PromptLogprobs& prompt,
                   const Finish& finish, JsonWriter& writer) override;
  std::optional<int64_t> n_reasoning_tokens() const override { return n_reasoning_; }
  // The choice's `logprobs` and what ends it.
  void WriteRest(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                 JsonWriter& writer) const;

  const Tokenizer& tokenizer_;
  const bool is_named_call_;
  std::vector<Choice> choices_;
  int64_t n_reasoning_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_CHAT_ANSWER_H_

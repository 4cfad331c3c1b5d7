#ifndef LOWKEY_SERVER_API_OPENAI_CHAT_ANSWER_H_
#define LOWKEY_SERVER_API_OPENAI_CHAT_ANSWER_H_

#include <vector>

#include "server/api/openai/answer.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// The answer of /v1/chat/completions.
class ChatAnswer final : public Answer {
 public:
  // The tokenizer must outlive the answer.
  ChatAnswer(AnswerForm form, const Tokenizer& tokenizer);

 private:
  void WriteChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                  JsonWriter& writer) override;
  void WriteChoice(size_t index, const v1::ChoiceDelta& choice, const v1::PromptLogprobs& prompt,
                   const Finish& finish, JsonWriter& writer) override;
  // The choice's `logprobs` and what ends it.
  void WriteRest(const v1::ChoiceDelta& delta, const Finish* finish, JsonWriter& writer) const;

  const Tokenizer& tokenizer_;
  std::vector<bool> is_begun_;  // by choice: its first chunk, which has the role, was written
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_CHAT_ANSWER_H_

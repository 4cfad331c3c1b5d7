#ifndef LOWKEY_SERVER_API_OPENAI_COMPLETION_ANSWER_H_
#define LOWKEY_SERVER_API_OPENAI_COMPLETION_ANSWER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/openai/answer.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// What /v1/completions repeats of its prompts.
struct PromptEcho {
  bool echoes = false;                                    // the choices begin with the prompt
  std::optional<int32_t> prompt_logprobs = std::nullopt;  // vLLM's list, beside the choices' text
  std::vector<std::string> texts = {};                    // by prompt, with `echoes`
  // By prompt: the first token, which has no log-probability; with logprobs alone.
  std::vector<int32_t> first_tokens = {};
};

// The answer of /v1/completions.
class CompletionAnswer final : public Answer {
 public:
  // The tokenizer must outlive the answer.
  CompletionAnswer(AnswerForm form, PromptEcho echo, const Tokenizer& tokenizer);

 private:
  bool WriteChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                  JsonWriter& writer) override;
  void WriteChoice(size_t index, const v1::ChoiceDelta& choice, const v1::PromptLogprobs& prompt,
                   const Finish& finish, JsonWriter& writer) override;
  void TakePromptLogprobs(size_t prompt, const v1::PromptLogprobs& logprobs) override;

  void WriteObject(size_t index, const v1::ChoiceDelta& delta, const v1::PromptLogprobs* prompt,
                   const Finish* finish, JsonWriter& writer);
  void WriteLogprobs(size_t index, const v1::ChoiceDelta& delta, const v1::PromptLogprobs* prompt,
                     JsonWriter& writer);
  void WritePromptLogprobs(const v1::PromptLogprobs& prompt, JsonWriter& writer) const;
  std::string TextOf(int32_t token) const;

  const PromptEcho echo_;
  const Tokenizer& tokenizer_;
  std::vector<bool> is_begun_;               // by choice: its first chunk was written
  std::vector<int64_t> n_written_;           // by choice: characters of tokens so far
  std::vector<v1::PromptLogprobs> prompts_;  // of streams, by prompt
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_COMPLETION_ANSWER_H_

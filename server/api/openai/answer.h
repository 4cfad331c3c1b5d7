#ifndef LOWKEY_SERVER_API_OPENAI_ANSWER_H_
#define LOWKEY_SERVER_API_OPENAI_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowkey/v1/generation.pb.h"
#include "server/api/http/json_writer.h"
#include "server/api/openai/generation_call.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// What an answer needs to know of its request.
struct AnswerForm {
  std::string id;     // "cmpl-..." or "chatcmpl-..."
  std::string model;  // as the client named it
  std::string fingerprint;
  int64_t created = 0;  // seconds since 1970
  size_t n_prompts = 1;
  size_t n = 1;  // choices per prompt
  bool includes_usage = false;
  bool includes_continuous_usage = false;
  int64_t n_prompt_tokens = 0;                     // of all prompts; for continuous usage alone
  std::optional<int32_t> logprobs = std::nullopt;  // alternatives per token
};

// Writes what completions and chats have in common; a subclass writes the choices. Of a stream, the
// last delta of a choice waits for Flush, as the end of the choice may come with it.
class Answer : public AnswerWriter {
 public:
  // `chunk_object` and `whole_object` are the answers' types: "chat.completion.chunk".
  Answer(AnswerForm form, std::string_view chunk_object, std::string_view whole_object);

  std::string Write(size_t prompt, const v1::GenerateEvent& event) final;
  std::string Flush(size_t prompt) final;
  std::string End() final;
  void Add(size_t prompt, const v1::GenerateResponse& response) final;
  size_t n_added_bytes() const final { return n_added_bytes_; }
  std::string Whole() final;

 protected:
  struct Finish {
    std::string_view reason;  // "stop" or "length"
    const v1::ChoiceFinish& finish;
  };

  const AnswerForm& form() const { return form_; }

  // Writes the choice object of a chunk; `finish` is null unless it is the choice's last chunk.
  // Returns whether the chunk is sent: one between the first and the last that has neither text nor
  // log-probabilities would say nothing.
  virtual bool WriteChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                          JsonWriter& writer) = 0;
  // Writes the choice object of a whole answer.
  virtual void WriteChoice(size_t index, const v1::ChoiceDelta& choice,
                           const v1::PromptLogprobs& prompt, const Finish& finish,
                           JsonWriter& writer) = 0;
  // Of a stream: takes the prompt's log-probabilities before the prompt's first chunk.
  virtual void TakePromptLogprobs(size_t prompt, const v1::PromptLogprobs& logprobs);
  // Returns the tokens of reasoning in the choices that have ended; nullopt where such an answer has
  // no reasoning.
  virtual std::optional<int64_t> n_reasoning_tokens() const { return std::nullopt; }

 private:
  struct Choice {
    std::optional<v1::ChoiceDelta> waiting = std::nullopt;
  };

  size_t IndexOf(size_t prompt, int32_t choice) const;
  // Appends nothing where WriteChunk says so.
  void AppendChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                   const v1::FinalEvent* final, std::string& out);
  std::string WriteFinal(size_t prompt, const v1::FinalEvent& final);
  void AddUsage(const v1::Usage& usage);
  void WriteUsage(int64_t n_prompt, int64_t n_generated, int64_t n_cached,
                  JsonWriter& writer) const;

  const AnswerForm form_;
  const std::string chunk_head_, whole_head_;  // up to the choices
  std::vector<Choice> choices_;
  int64_t n_streamed_ = 0;                  // tokens of all choices so far
  std::vector<std::string> whole_choices_;  // by prompt
  size_t n_added_bytes_ = 0;                // of whole_choices_
  std::vector<v1::FinalEvent> finals_;      // by prompt
  int64_t n_prompt_ = 0, n_generated_ = 0, n_cached_ = 0;
};

// "stop" or "length"; empty for choices that an error ended.
std::string_view FinishReasonOf(const v1::ChoiceFinish& finish);

// Returns how many tokens the text of a reasoning has, as the tokenizer cuts it.
int64_t CountReasoning(const Tokenizer& tokenizer, const std::string& text);

// Writes the `lowkey` object of a result: how attention ran, times, and the seed.
void WriteReport(const v1::FinalEvent& final, JsonWriter& writer);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_ANSWER_H_

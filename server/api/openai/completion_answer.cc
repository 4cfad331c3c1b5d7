#include "server/api/openai/completion_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

// One token of a `logprobs` object.
struct Entry {
  std::string text;
  const v1::Token* token;  // null: the prompt's first, which nothing stands before
  // The characters that begin with it: of one that several tokens spell, the first counts it.
  int64_t n_characters;
};

// Writes the alternatives as a map from text to log-probability, the token itself among them. Of
// tokens with one text, the most likely stays.
void WriteTop(const Entry& entry, JsonWriter& writer) {
  if (entry.token == nullptr) {
    writer.Null();
    return;
  }
  std::vector<std::pair<std::string_view, float>> top;
  const auto add = [&top](std::string_view text, float logprob) {
    for (auto& [known, value] : top) {
      if (known != text) continue;
      value = std::max(value, logprob);
      return;
    }
    top.emplace_back(text, logprob);
  };
  for (const v1::TokenLogprob& other : entry.token->top_logprobs()) {
    add(other.text(), other.logprob());
  }
  add(entry.text, entry.token->logprob());
  writer.BeginObject();
  for (const auto& [text, logprob] : top) writer.Key(text).Float(logprob);
  writer.EndObject();
}

void WriteEntries(const std::vector<Entry>& entries, int64_t& n_characters, JsonWriter& writer) {
  writer.BeginObject().Key("tokens").BeginArray();
  for (const Entry& entry : entries) writer.Text(entry.text);
  writer.EndArray().Key("token_logprobs").BeginArray();
  for (const Entry& entry : entries) {
    entry.token == nullptr ? writer.Null() : writer.Float(entry.token->logprob());
  }
  writer.EndArray().Key("top_logprobs").BeginArray();
  for (const Entry& entry : entries) WriteTop(entry, writer);
  writer.EndArray().Key("text_offset").BeginArray();
  for (const Entry& entry : entries) {
    writer.Int(n_characters);
    n_characters += entry.n_characters;
  }
  writer.EndArray().EndObject();
}

}  // namespace

CompletionAnswer::CompletionAnswer(AnswerForm form, PromptEcho echo, const Tokenizer& tokenizer)
    : Answer(std::move(form), "text_completion", "text_completion"),
      echo_(std::move(echo)),
      tokenizer_(tokenizer),
      is_begun_(this->form().n_prompts * this->form().n),
      n_written_(is_begun_.size()),
      prompts_(this->form().n_prompts) {}

std::string CompletionAnswer::TextOf(int32_t token) const {
  return tokenizer_.Decode({token}, {.keep_leading_space = true}).value_or(std::string());
}

void CompletionAnswer::TakePromptLogprobs(size_t prompt, const v1::PromptLogprobs& logprobs) {
  prompts_[prompt] = logprobs;
}

void CompletionAnswer::WriteLogprobs(size_t index, const v1::ChoiceDelta& delta,
                                     const v1::PromptLogprobs* prompt, JsonWriter& writer) {
  std::vector<Entry> entries;
  const auto add = [&](int32_t id, const v1::Token* token) {
    const size_t n = CountCharacters(tokenizer_.BytesOf(id).value_or(""));
    entries.push_back({TextOf(id), token, static_cast<int64_t>(n)});
  };
  if (prompt != nullptr && echo_.echoes) {
    add(echo_.first_tokens[index / form().n], nullptr);
    for (const v1::PromptToken& token : prompt->tokens()) {
      add(token.token().token_id(), &token.token());
    }
  }
  for (const v1::Token& token : delta.tokens()) add(token.token_id(), &token);
  WriteEntries(entries, n_written_[index], writer);
}

void CompletionAnswer::WritePromptLogprobs(const v1::PromptLogprobs& prompt,
                                           JsonWriter& writer) const {
  writer.BeginArray().Null();
  const auto write = [&writer](int32_t id, std::string_view text, float logprob,
                               std::optional<int> rank) {
    writer.Key(absl::StrCat(id)).BeginObject().Key("logprob").Float(logprob);
    if (rank.has_value()) writer.Key("rank").Int(*rank);
    writer.Key("decoded_token").Text(text).EndObject();
  };
  for (const v1::PromptToken& entry : prompt.tokens()) {
    const v1::Token& token = entry.token();
    bool is_written = false;
    writer.BeginObject();
    for (int i = 0; i < token.top_logprobs_size(); ++i) {
      const v1::TokenLogprob& other = token.top_logprobs(i);
      is_written = is_written || other.token_id() == token.token_id();
      write(other.token_id(), other.text(), other.logprob(), i + 1);
    }
    if (!is_written) {
      write(token.token_id(), TextOf(token.token_id()), token.logprob(), std::nullopt);
    }
    writer.EndObject();
  }
  writer.EndArray();
}

void CompletionAnswer::WriteObject(size_t index, const v1::ChoiceDelta& delta,
                                   const v1::PromptLogprobs* prompt, const Finish* finish,
                                   JsonWriter& writer) {
  const bool begins_with_prompt = prompt != nullptr && echo_.echoes;
  writer.BeginObject().Key("index").Unsigned(index).Key("text");
  writer.Text(begins_with_prompt ? echo_.texts[index / form().n] + delta.text() : delta.text());
  writer.Key("logprobs");
  if (form().logprobs.has_value()) {
    WriteLogprobs(index, delta, prompt, writer);
  } else {
    writer.Null();
  }
  if (prompt != nullptr && echo_.prompt_logprobs.has_value()) {
    writer.Key("prompt_logprobs");
    WritePromptLogprobs(*prompt, writer);
  }
  writer.Key("finish_reason");
  finish == nullptr ? writer.Null() : writer.Text(finish->reason);
  if (finish != nullptr && finish->finish.has_stop_text()) {
    writer.Key("stop_reason").Text(finish->finish.stop_text());
  }
  writer.EndObject();
}

bool CompletionAnswer::WriteChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                                  JsonWriter& writer) {
  const bool is_first = !is_begun_[index];
  is_begun_[index] = true;
  WriteObject(index, delta, is_first ? &prompts_[index / form().n] : nullptr, finish, writer);
  const bool has_logprobs = form().logprobs.has_value() && delta.tokens_size() > 0;
  return is_first || finish != nullptr || has_logprobs || !delta.text().empty();
}

void CompletionAnswer::WriteChoice(size_t index, const v1::ChoiceDelta& choice,
                                   const v1::PromptLogprobs& prompt, const Finish& finish,
                                   JsonWriter& writer) {
  WriteObject(index, choice, &prompt, &finish, writer);
}

}  // namespace lowkey

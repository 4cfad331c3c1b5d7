#include "server/api/openai/chat_answer.h"

#include <string>
#include <string_view>
#include <utility>

namespace lowkey {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Writes the members of a token and its log-probability. A part of a character has no text whose
// bytes would be its own.
void WriteToken(std::string_view text, float logprob, JsonWriter& writer) {
  writer.Key("token").Text(text).Key("logprob").Float(logprob).Key("bytes");
  if (text.find(kReplacement) != std::string_view::npos) {
    writer.Null();
    return;
  }
  writer.BeginArray();
  for (const char byte : text) writer.Int(static_cast<unsigned char>(byte));
  writer.EndArray();
}

}  // namespace

ChatAnswer::ChatAnswer(AnswerForm form, const Tokenizer& tokenizer)
    : Answer(std::move(form), "chat.completion.chunk", "chat.completion"),
      tokenizer_(tokenizer),
      is_begun_(this->form().n_prompts * this->form().n) {}

void ChatAnswer::WriteRest(const v1::ChoiceDelta& delta, const Finish* finish,
                           JsonWriter& writer) const {
  writer.Key("logprobs");
  if (form().logprobs.has_value()) {
    writer.BeginObject().Key("content").BeginArray();
    for (const v1::Token& token : delta.tokens()) {
      const std::string text =
          tokenizer_.Decode({token.token_id()}, {.keep_leading_space = true}).value_or("");
      writer.BeginObject();
      WriteToken(text, token.logprob(), writer);
      writer.Key("top_logprobs").BeginArray();
      for (const v1::TokenLogprob& other : token.top_logprobs()) {
        writer.BeginObject();
        WriteToken(other.text(), other.logprob(), writer);
        writer.EndObject();
      }
      writer.EndArray().EndObject();
    }
    writer.EndArray().Key("refusal").Null().EndObject();
  } else {
    writer.Null();
  }
  writer.Key("finish_reason");
  finish == nullptr ? writer.Null() : writer.Text(finish->reason);
  if (finish != nullptr && finish->finish.has_stop_text()) {
    writer.Key("stop_reason").Text(finish->finish.stop_text());
  }
}

void ChatAnswer::WriteChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                            JsonWriter& writer) {
  writer.BeginObject().Key("index").Unsigned(index).Key("delta").BeginObject();
  if (!is_begun_[index]) writer.Key("role").Text("assistant");
  is_begun_[index] = true;
  writer.Key("content").Text(delta.text()).EndObject();
  WriteRest(delta, finish, writer);
  writer.EndObject();
}

void ChatAnswer::WriteChoice(size_t index, const v1::ChoiceDelta& choice, const v1::PromptLogprobs&,
                             const Finish& finish, JsonWriter& writer) {
  writer.BeginObject().Key("index").Unsigned(index).Key("message").BeginObject();
  writer.Key("role").Text("assistant").Key("content").Text(choice.text()).EndObject();
  WriteRest(choice, &finish, writer);
  writer.EndObject();
}

}  // namespace lowkey

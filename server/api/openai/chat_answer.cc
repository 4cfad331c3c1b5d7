#include "server/api/openai/chat_answer.h"

#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

// Writes the members of a token and its log-probability. A part of a character has no text whose
// bytes would be its own.
void WriteToken(std::string_view text, float logprob, JsonWriter& writer) {
  writer.Key("token").Text(text).Key("logprob").Float(logprob).Key("bytes");
  if (text.find(kReplacementChar) != std::string_view::npos) {
    writer.Null();
    return;
  }
  writer.BeginArray();
  for (const char byte : text) writer.Int(static_cast<unsigned char>(byte));
  writer.EndArray();
}

// A call's begin has its id and name, and what follows has pieces of its arguments. A call has one
// entry in a chunk: openai-python takes the first chunk's entries for as many calls.
void WriteCallDeltas(const std::vector<ToolEvent>& events, JsonWriter& writer) {
  writer.Key("tool_calls").BeginArray();
  for (size_t i = 0; i < events.size();) {
    const ToolEvent& event = events[i++];
    const bool begins = event.kind == ToolEvent::Kind::kCallBegin;
    std::string arguments = begins ? "" : event.text;
    while (i < events.size() && events[i].kind == ToolEvent::Kind::kArguments &&
           events[i].index == event.index) {
      arguments += events[i++].text;
    }
    writer.BeginObject().Key("index").Int(event.index);
    if (begins) writer.Key("id").Text(event.id).Key("type").Text("function");
    writer.Key("function").BeginObject();
    if (begins) writer.Key("name").Text(event.name);
    writer.Key("arguments").Text(arguments).EndObject().EndObject();
  }
  writer.EndArray();
}

// Every call once, with all of its arguments, which follow its begin.
void WriteCalls(const std::vector<ToolEvent>& events, JsonWriter& writer) {
  writer.Key("tool_calls").BeginArray();
  for (size_t i = 0; i < events.size();) {
    const ToolEvent& begin = events[i++];
    std::string arguments;
    while (i < events.size() && events[i].kind == ToolEvent::Kind::kArguments) {
      arguments += events[i++].text;
    }
    writer.BeginObject().Key("id").Text(begin.id).Key("type").Text("function");
    writer.Key("function").BeginObject().Key("name").Text(begin.name);
    writer.Key("arguments").Text(arguments).EndObject().EndObject();
  }
  writer.EndArray();
}

}  // namespace

ChatAnswer::ChatAnswer(AnswerForm form, const ChatParsing& parsing, const Tokenizer& tokenizer)
    : Answer(std::move(form), "chat.completion.chunk", "chat.completion"),
      tokenizer_(tokenizer),
      is_named_call_(parsing.is_named_call),
      choices_(this->form().n_prompts * this->form().n) {
  for (Choice& choice : choices_) choice.parser = MakeParser(parsing);
}

ChatAnswer::Parsed ChatAnswer::Parse(size_t index, const std::string& text, const Finish* finish) {
  Choice& choice = choices_[index];
  Parsed parsed;
  if (choice.parser == nullptr) {
    parsed.content = text;
    return parsed;
  }
  std::vector<ToolEvent> events;
  choice.parser->Add(text, events);
  if (finish != nullptr) choice.parser->End(events);
  for (ToolEvent& event : events) {
    switch (event.kind) {
      case ToolEvent::Kind::kContent:
        parsed.content += event.text;
        break;
      case ToolEvent::Kind::kReasoning:
        parsed.reasoning += event.text;
        break;
      default:
        choice.has_calls = true;
        parsed.calls.push_back(std::move(event));
    }
  }
  choice.reasoning += parsed.reasoning;
  if (finish != nullptr) n_reasoning_ += CountReasoning(tokenizer_, choice.reasoning);
  return parsed;
}

void ChatAnswer::WriteRest(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
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
  if (finish == nullptr) {
    writer.Null();
  } else {
    // OpenAI says "stop" where the request has named the tool.
    const bool calls = choices_[index].has_calls && !is_named_call_ && finish->reason == "stop";
    writer.Text(calls ? "tool_calls" : finish->reason);
  }
  if (finish != nullptr && finish->finish.has_stop_text()) {
    writer.Key("stop_reason").Text(finish->finish.stop_text());
  }
}

bool ChatAnswer::WriteChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                            JsonWriter& writer) {
  const Parsed parsed = Parse(index, delta.text(), finish);
  const bool is_first = !std::exchange(choices_[index].is_begun, true);
  writer.BeginObject().Key("index").Unsigned(index).Key("delta").BeginObject();
  if (is_first) writer.Key("role").Text("assistant");
  if (!parsed.reasoning.empty()) writer.Key("reasoning_content").Text(parsed.reasoning);
  if (!parsed.calls.empty()) WriteCallDeltas(parsed.calls, writer);
  if (parsed.calls.empty() || !parsed.content.empty()) writer.Key("content").Text(parsed.content);
  writer.EndObject();
  WriteRest(index, delta, finish, writer);
  writer.EndObject();
  const bool has_logprobs = form().logprobs.has_value() && delta.tokens_size() > 0;
  return is_first || finish != nullptr || has_logprobs || !parsed.calls.empty() ||
         !parsed.content.empty() || !parsed.reasoning.empty();
}

void ChatAnswer::WriteChoice(size_t index, const v1::ChoiceDelta& choice, const v1::PromptLogprobs&,
                             const Finish& finish, JsonWriter& writer) {
  const Parsed parsed = Parse(index, choice.text(), &finish);
  writer.BeginObject().Key("index").Unsigned(index).Key("message").BeginObject();
  writer.Key("role").Text("assistant").Key("content");
  parsed.content.empty() && !parsed.calls.empty() ? writer.Null() : writer.Text(parsed.content);
  if (!parsed.reasoning.empty()) writer.Key("reasoning_content").Text(parsed.reasoning);
  if (!parsed.calls.empty()) WriteCalls(parsed.calls, writer);
  writer.EndObject();
  WriteRest(index, choice, &finish, writer);
  writer.EndObject();
}

}  // namespace lowkey

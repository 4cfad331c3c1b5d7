// Converts lowkey.v1 requests to our structs and back.
#include "server/api/lowkey/convert_request.h"

#include <string>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

TokenList ToTokens(const v1::TokenIds& proto) {
  return TokenList(proto.ids().begin(), proto.ids().end());
}

void SetTokens(const TokenList& tokens, v1::TokenIds& proto) {
  proto.mutable_ids()->Assign(tokens.begin(), tokens.end());
}

// Copies proto field FIELD into the std::optional `to` when it is present.
#define LK_TAKE(proto, field, to) \
  if ((proto).has_##field()) (to) = (proto).field()
// Sets proto field FIELD from the std::optional `from` if that has a value.
#define LK_PUT(from, proto, field) \
  if ((from).has_value()) (proto).set_##field(*(from))

SamplingChoice ToSampling(const v1::SamplingOptions& proto) {
  SamplingChoice sampling;
  LK_TAKE(proto, temperature, sampling.temperature);
  LK_TAKE(proto, top_k, sampling.top_k);
  LK_TAKE(proto, top_p, sampling.top_p);
  LK_TAKE(proto, min_p, sampling.min_p);
  LK_TAKE(proto, repetition_penalty, sampling.repetition_penalty);
  LK_TAKE(proto, presence_penalty, sampling.presence_penalty);
  LK_TAKE(proto, frequency_penalty, sampling.frequency_penalty);
  LK_TAKE(proto, seed, sampling.seed);
  sampling.logit_bias.assign(proto.logit_bias().begin(), proto.logit_bias().end());
  return sampling;
}

void PutSampling(const SamplingChoice& sampling, v1::SamplingOptions& proto) {
  LK_PUT(sampling.temperature, proto, temperature);
  LK_PUT(sampling.top_k, proto, top_k);
  LK_PUT(sampling.top_p, proto, top_p);
  LK_PUT(sampling.min_p, proto, min_p);
  LK_PUT(sampling.repetition_penalty, proto, repetition_penalty);
  LK_PUT(sampling.presence_penalty, proto, presence_penalty);
  LK_PUT(sampling.frequency_penalty, proto, frequency_penalty);
  LK_PUT(sampling.seed, proto, seed);
  for (const auto& [id, bias] : sampling.logit_bias) (*proto.mutable_logit_bias())[id] = bias;
}

ChatMessage ToMessage(const v1::ChatMessage& proto) {
  ChatMessage message;
  message.role = proto.role();
  LK_TAKE(proto, content, message.content);
  LK_TAKE(proto, name, message.name);
  LK_TAKE(proto, tool_call_id, message.tool_call_id);
  for (const v1::ToolCall& call : proto.tool_calls()) {
    message.tool_calls.push_back({call.id(), call.name(), call.arguments_json()});
  }
  return message;
}

void PutMessage(const ChatMessage& message, v1::ChatMessage& proto) {
  proto.set_role(message.role);
  LK_PUT(message.content, proto, content);
  LK_PUT(message.name, proto, name);
  LK_PUT(message.tool_call_id, proto, tool_call_id);
  for (const ToolCall& call : message.tool_calls) {
    v1::ToolCall& entry = *proto.add_tool_calls();
    entry.set_id(call.id);
    entry.set_name(call.name);
    entry.set_arguments_json(call.arguments_json);
  }
}

void PutConversation(const Conversation& conversation, v1::Chat& proto) {
  for (const ChatMessage& message : conversation.messages) {
    PutMessage(message, *proto.add_messages());
  }
  proto.set_tools_json(conversation.tools_json);
  proto.set_variables_json(conversation.variables_json);
  if (!conversation.add_generation_prompt) proto.set_add_generation_prompt(false);
}

absl::StatusOr<ResponseFormat> ToResponseFormat(const v1::ResponseFormat& proto) {
  using Kind = ResponseFormat::Kind;
  switch (proto.format_case()) {
    case v1::ResponseFormat::kJsonObject:
      return ResponseFormat{Kind::kJsonObject};
    case v1::ResponseFormat::kJsonSchema:
      return ResponseFormat{Kind::kJsonSchema, proto.json_schema()};
    case v1::ResponseFormat::kRegex:
      return ResponseFormat{Kind::kRegex, proto.regex()};
    case v1::ResponseFormat::kChoice:
      return ResponseFormat{
          Kind::kChoice, {}, {proto.choice().texts().begin(), proto.choice().texts().end()}};
    case v1::ResponseFormat::kGrammar:
      return ResponseFormat{Kind::kGrammar, proto.grammar()};
    case v1::ResponseFormat::FORMAT_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "response_format: no form, expected json_object, json_schema, regex, choice or grammar");
}

void PutResponseFormat(const ResponseFormat& format, v1::ResponseFormat& proto) {
  switch (format.kind) {
    case ResponseFormat::Kind::kJsonObject:
      proto.mutable_json_object();
      break;
    case ResponseFormat::Kind::kJsonSchema:
      proto.set_json_schema(format.text);
      break;
    case ResponseFormat::Kind::kRegex:
      proto.set_regex(format.text);
      break;
    case ResponseFormat::Kind::kChoice:
      proto.mutable_choice()->mutable_texts()->Assign(format.choices.begin(), format.choices.end());
      break;
    case ResponseFormat::Kind::kGrammar:
      proto.set_grammar(format.text);
      break;
    case ResponseFormat::Kind::kToolCalls:
      break;  // lowkey.v1 has no such form
  }
}

}  // namespace

Conversation FromProto(const v1::Chat& proto) {
  Conversation conversation;
  for (const v1::ChatMessage& message : proto.messages()) {
    conversation.messages.push_back(ToMessage(message));
  }
  conversation.tools_json = proto.tools_json();
  conversation.variables_json = proto.variables_json();
  LK_TAKE(proto, add_generation_prompt, conversation.add_generation_prompt);
  return conversation;
}

absl::StatusOr<GenerationRequest> FromProto(const v1::GenerateRequest& proto) {
  GenerationRequest request;
  request.model = proto.model();
  request.request_id = proto.request_id();
  if (proto.has_text()) {
    request.input = proto.text();
  } else if (proto.has_token_ids()) {
    request.input = ToTokens(proto.token_ids());
  } else if (proto.has_chat()) {
    request.input = FromProto(proto.chat());
  } else {
    return absl::InvalidArgumentError("input: not set, expected text, token_ids or chat");
  }
  request.sampling = ToSampling(proto.sampling());
  request.attention = FromProto(proto.attention());
  LK_TAKE(proto, max_new_tokens, request.max_new_tokens);
  request.stop_texts.assign(proto.stop().begin(), proto.stop().end());
  request.stop_tokens.assign(proto.stop_token_ids().begin(), proto.stop_token_ids().end());
  request.ignore_eos = proto.ignore_eos();
  LK_TAKE(proto, logprobs, request.logprobs);
  LK_TAKE(proto, prompt_logprobs, request.prompt_logprobs);
  LK_TAKE(proto, n, request.n);
  LK_TAKE(proto, priority, request.priority);
  LK_TAKE(proto, draft, request.draft);
  if (proto.has_response_format()) {
    LK_ASSIGN_OR_RETURN(request.response_format, ToResponseFormat(proto.response_format()));
  }
  request.prefix_marks.assign(proto.prefix_marks().begin(), proto.prefix_marks().end());
  return request;
}

v1::GenerateRequest ToProto(const GenerationRequest& request) {
  v1::GenerateRequest proto;
  proto.set_model(request.model);
  proto.set_request_id(request.request_id);
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    proto.set_text(*text);
  } else if (const auto* tokens = std::get_if<TokenList>(&request.input)) {
    SetTokens(*tokens, *proto.mutable_token_ids());
  } else {
    PutConversation(std::get<Conversation>(request.input), *proto.mutable_chat());
  }
  PutSampling(request.sampling, *proto.mutable_sampling());
  *proto.mutable_attention() = ToProto(request.attention);
  LK_PUT(request.max_new_tokens, proto, max_new_tokens);
  proto.mutable_stop()->Assign(request.stop_texts.begin(), request.stop_texts.end());
  proto.mutable_stop_token_ids()->Assign(request.stop_tokens.begin(), request.stop_tokens.end());
  if (request.ignore_eos) proto.set_ignore_eos(true);
  LK_PUT(request.logprobs, proto, logprobs);
  LK_PUT(request.prompt_logprobs, proto, prompt_logprobs);
  LK_PUT(request.n, proto, n);
  LK_PUT(request.priority, proto, priority);
  LK_PUT(request.draft, proto, draft);
  if (request.response_format.has_value()) {
    PutResponseFormat(*request.response_format, *proto.mutable_response_format());
  }
  proto.mutable_prefix_marks()->Assign(request.prefix_marks.begin(), request.prefix_marks.end());
  return proto;
}

absl::StatusOr<ScoreRequest> FromProto(const v1::ScoreRequest& proto) {
  ScoreRequest request;
  request.model = proto.model();
  if (proto.has_text()) {
    request.context = proto.text();
  } else if (proto.has_token_ids()) {
    request.context = ToTokens(proto.token_ids());
  } else {
    return absl::InvalidArgumentError("context: not set, expected text or token_ids");
  }
  for (const std::string& text : proto.continuation_texts()) {
    request.continuations.emplace_back(text);
  }
  for (const v1::TokenIds& ids : proto.continuation_token_ids()) {
    request.continuations.emplace_back(ToTokens(ids));
  }
  request.attention = FromProto(proto.attention());
  return request;
}

absl::StatusOr<TokenizeRequest> FromProto(const v1::TokenizeRequest& proto) {
  TokenizeRequest request;
  request.model = proto.model();
  LK_TAKE(proto, add_bos, request.add_bos);
  if (!proto.has_chat()) {
    request.input = proto.text();
  } else if (proto.text().empty()) {
    request.input = FromProto(proto.chat());
  } else {
    return absl::InvalidArgumentError("text: set beside chat, expected one of them");
  }
  return request;
}

DetokenizeRequest FromProto(const v1::DetokenizeRequest& proto) {
  DetokenizeRequest request;
  request.model = proto.model();
  request.tokens.assign(proto.token_ids().begin(), proto.token_ids().end());
  return request;
}

}  // namespace lowkey

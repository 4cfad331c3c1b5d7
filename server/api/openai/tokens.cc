#include "server/api/openai/tokens.h"

#include <optional>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/api/http/json_writer.h"
#include "server/api/openai/model_names.h"
#include "server/api/openai/requests/fields.h"
#include "server/api/openai/requests/messages.h"

namespace lowkey {
namespace {

// How the answer shows each token beside its id.
enum class Pieces { kNone, kTexts, kObjects };

// These paths may leave the model out.
absl::Status CheckModel(const TextService& service, Fields& fields) {
  std::optional<std::string> model;
  LK_RETURN_IF_ERROR(fields.Read("model", model));
  return model.has_value() ? ResolveModel(service, *model).status() : absl::OkStatus();
}

absl::Status ReadTokenize(const OpenAiOptions& options, const std::string& body, Fields& fields,
                          TokenizeRequest& request, Pieces& pieces) {
  std::optional<std::string> prompt, content;
  bool adds_special = true, shows_texts = false, shows_objects = false;
  LK_RETURN_IF_ERROR(fields.Read("prompt", prompt));
  LK_RETURN_IF_ERROR(fields.Read("content", content));
  // vLLM's names, then llama.cpp's, whose texts begin without the special token.
  if (content.has_value()) adds_special = false;
  LK_RETURN_IF_ERROR(fields.Read("add_special_tokens", adds_special));
  LK_RETURN_IF_ERROR(fields.Read("add_special", adds_special));
  LK_RETURN_IF_ERROR(fields.Read("return_token_strs", shows_texts));
  LK_RETURN_IF_ERROR(fields.Read("with_pieces", shows_objects));
  LK_RETURN_IF_ERROR(fields.Accept("parse_special", false));
  pieces = shows_objects ? Pieces::kObjects : shows_texts ? Pieces::kTexts : Pieces::kNone;
  request.add_bos = adds_special;
  const bool is_chat = fields.Take("messages") != nullptr;
  if (int{prompt.has_value()} + int{content.has_value()} + int{is_chat} != 1) {
    return absl::InvalidArgumentError("prompt: expected one of prompt, content and messages");
  }
  if (is_chat) {
    LK_ASSIGN_OR_RETURN(const RequestedTools tools, ReadTools(fields, body));
    LK_ASSIGN_OR_RETURN(request.input,
                        ReadConversation(fields, body, tools, options.unknown_fields));
  } else {
    request.input = prompt.has_value() ? *std::move(prompt) : *std::move(content);
  }
  return fields.CheckRest(options.unknown_fields);
}

absl::Status WriteTokens(const TextService& service, const TokenList& tokens, Pieces pieces,
                         JsonWriter& writer) {
  writer.Key("tokens").BeginArray();
  for (const int32_t token : tokens) {
    if (pieces != Pieces::kObjects) {
      writer.Int(token);
      continue;
    }
    LK_ASSIGN_OR_RETURN(const std::string text,
                        service.tokenizer().Decode({token}, {.keep_leading_space = true}));
    writer.BeginObject().Key("id").Int(token).Key("piece").Text(text).EndObject();
  }
  writer.EndArray();
  if (pieces != Pieces::kTexts) return absl::OkStatus();
  writer.Key("token_strs").BeginArray();
  for (const int32_t token : tokens) {
    LK_ASSIGN_OR_RETURN(const std::string_view piece, service.tokenizer().IdToPiece(token));
    writer.Text(piece);
  }
  writer.EndArray();
  return absl::OkStatus();
}

void WriteToken(const char* key, const Tokenizer& tokenizer, std::optional<int32_t> id,
                JsonWriter& writer) {
  writer.Key(key);
  const auto piece = id.has_value() ? tokenizer.IdToPiece(*id) : std::string_view();
  id.has_value() && piece.ok() ? writer.Text(*piece) : writer.Null();
}

}  // namespace

absl::StatusOr<std::string> TokenizeJson(const TextService& service, const OpenAiOptions& options,
                                         const RpcContext& context, const CallState& call,
                                         const std::string& body) {
  LK_ASSIGN_OR_RETURN(const nlohmann::json object, ParseBody(body));
  Fields fields(object);
  LK_RETURN_IF_ERROR(CheckModel(service, fields));
  TokenizeRequest request;
  Pieces pieces = Pieces::kNone;
  LK_RETURN_IF_ERROR(ReadTokenize(options, body, fields, request, pieces));
  SetCaller(context, call, request);
  LK_ASSIGN_OR_RETURN(const TokenizeResult result, service.Tokenize(request));
  std::string json;
  JsonWriter writer(json);
  writer.BeginObject().Key("count").Unsigned(result.tokens.size());
  writer.Key("max_model_len").Int(service.engine().limits().context_tokens);
  LK_RETURN_IF_ERROR(WriteTokens(service, result.tokens, pieces, writer));
  writer.EndObject();
  return json;
}

absl::StatusOr<std::string> DetokenizeJson(const TextService& service, const OpenAiOptions& options,
                                           const RpcContext& context, const CallState& call,
                                           const std::string& body) {
  LK_ASSIGN_OR_RETURN(const nlohmann::json object, ParseBody(body));
  Fields fields(object);
  LK_RETURN_IF_ERROR(CheckModel(service, fields));
  DetokenizeRequest request;
  if (fields.Take("tokens") == nullptr) return fields.Error("tokens", "an array of token ids");
  LK_RETURN_IF_ERROR(fields.Read("tokens", request.tokens));
  LK_RETURN_IF_ERROR(fields.CheckRest(options.unknown_fields));
  SetCaller(context, call, request);
  LK_ASSIGN_OR_RETURN(const std::string text, service.Detokenize(request));
  std::string json;
  JsonWriter writer(json);
  // vLLM's name for the text, and llama.cpp's.
  writer.BeginObject().Key("prompt").Text(text).Key("content").Text(text).EndObject();
  return json;
}

std::string TokenizerInfoJson(const TextService& service) {
  const Tokenizer& tokenizer = service.tokenizer();
  const std::vector<int32_t>& ends = tokenizer.eos_ids();
  const std::optional<int32_t> end = ends.empty() ? std::nullopt : std::optional<int32_t>(ends[0]);
  std::string json;
  JsonWriter writer(json);
  writer.BeginObject();
  WriteToken("bos_token", tokenizer, tokenizer.bos_id(), writer);
  WriteToken("eos_token", tokenizer, end, writer);
  WriteToken("pad_token", tokenizer, end, writer);  // what clients without one pad with
  writer.Key("bos_token_id");
  tokenizer.bos_id().has_value() ? writer.Int(*tokenizer.bos_id()) : writer.Null();
  writer.Key("eos_token_id");
  end.has_value() ? writer.Int(*end) : writer.Null();
  writer.Key("add_bos_token").Bool(tokenizer.adds_bos());
  writer.Key("vocab_size").Int(tokenizer.vocab_size());
  writer.Key("max_model_len").Int(service.engine().limits().context_tokens);
  const auto& chat_template = service.options().chat_templates.Find(ChatTemplates::Tools::kNone);
  writer.Key("chat_template");
  chat_template.ok() ? writer.Text(chat_template->source()) : writer.Null();
  writer.EndObject();
  return json;
}

}  // namespace lowkey

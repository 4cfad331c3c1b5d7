#include "server/api/openai/requests/request_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "lowkey/v1/generation.pb.h"
#include "server/api/http/proto_json.h"
#include "server/api/lowkey/convert_request.h"
#include "server/api/openai/model_names.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

using nlohmann::json;

// Fields about the client and the account: they change nothing of an answer.
constexpr const char* kWithoutEffect[] = {"user",
                                          "store",
                                          "metadata",
                                          "service_tier",
                                          "safety_identifier",
                                          "prompt_cache_key",
                                          "prompt_cache_retention"};

constexpr const char* kUnsupported[] = {"suffix",
                                        "audio",
                                        "prediction",
                                        "function_call",
                                        "reasoning_effort",
                                        "web_search_options",
                                        "logits_processors",
                                        "truncate_prompt_tokens",
                                        "documents",
                                        "cache_salt",
                                        "kv_transfer_params"};

absl::Status ReadSeed(Fields& fields, std::optional<uint64_t>& seed) {
  const json* value = fields.Take("seed");
  if (value == nullptr) return absl::OkStatus();
  if (const auto number = WholeNumber(*value); number.has_value()) {
    seed = static_cast<uint64_t>(*number);
    return absl::OkStatus();
  }
  if (!value->is_number_integer()) return fields.Error("seed", "an integer of 64 bits");
  // A negative seed is as good as any other.
  seed = value->is_number_unsigned() ? value->get<uint64_t>()
                                     : static_cast<uint64_t>(value->get<int64_t>());
  return absl::OkStatus();
}

absl::Status ReadLogitBias(Fields& fields, std::vector<std::pair<int32_t, float>>& biases) {
  const json* value = fields.Take("logit_bias");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_object() || value->size() > kMaxBiases) {
    return fields.Error(
        "logit_bias", absl::StrCat("an object of at most ", kMaxBiases, " token ids and numbers"));
  }
  for (const auto& [key, bias] : value->items()) {
    int32_t id = 0;
    const std::string name = absl::StrCat(fields.NameOf("logit_bias"), ".", key.substr(0, 32));
    if (!absl::SimpleAtoi(key, &id) || absl::StrCat(id) != key) {
      return absl::InvalidArgumentError(
          absl::StrCat("logit_bias: key \"", key.substr(0, 32), "\", expected a token id"));
    }
    if (!bias.is_number()) {
      return ValueError(name, bias, absl::StrCat("a number in -", kMaxBias, "..", kMaxBias));
    }
    biases.emplace_back(id, bias.get<float>());
  }
  return absl::OkStatus();
}

absl::Status ReadStopText(const std::string& name, const json& value,
                          std::vector<std::string>& stop) {
  const auto* text = value.get_ptr<const std::string*>();
  if (text == nullptr || text->empty() || text->size() > kMaxStopTextBytes) {
    return ValueError(name, value, absl::StrCat("a text of 1..", kMaxStopTextBytes, " bytes"));
  }
  stop.push_back(*text);
  return absl::OkStatus();
}

absl::Status ReadStop(Fields& fields, std::vector<std::string>& stop) {
  const json* value = fields.Take("stop");
  if (value == nullptr) return absl::OkStatus();
  if (value->is_string()) return ReadStopText("stop", *value, stop);
  if (!value->is_array() || value->size() > kMaxStopTexts) {
    return fields.Error("stop",
                        absl::StrCat("a text or an array of at most ", kMaxStopTexts, " texts"));
  }
  for (size_t i = 0; i < value->size(); ++i) {
    LK_RETURN_IF_ERROR(ReadStopText(absl::StrCat("stop[", i, "]"), (*value)[i], stop));
  }
  return absl::OkStatus();
}

absl::Status ReadSampling(const OpenAiOptions& options, Fields& fields, SamplingChoice& sampling) {
  LK_RETURN_IF_ERROR(fields.Read("temperature", sampling.temperature));
  if (!sampling.temperature.has_value()) sampling.temperature = options.temperature;
  LK_RETURN_IF_ERROR(fields.Read("top_p", sampling.top_p));
  LK_RETURN_IF_ERROR(fields.Read("min_p", sampling.min_p));
  LK_RETURN_IF_ERROR(fields.Read("top_k", sampling.top_k));
  if (sampling.top_k == -1) sampling.top_k = 0;  // vLLM's word for all tokens
  LK_RETURN_IF_ERROR(fields.Read("presence_penalty", sampling.presence_penalty));
  LK_RETURN_IF_ERROR(fields.Read("frequency_penalty", sampling.frequency_penalty));
  LK_RETURN_IF_ERROR(fields.Read("repetition_penalty", sampling.repetition_penalty));
  LK_RETURN_IF_ERROR(ReadLogitBias(fields, sampling.logit_bias));
  return ReadSeed(fields, sampling.seed);
}

absl::Status ReadStream(Fields& fields, CommonRequest& common) {
  LK_RETURN_IF_ERROR(fields.Read("stream", common.is_stream));
  const json* value = fields.Take("stream_options");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_object()) return fields.Error("stream_options", "an object");
  if (!common.is_stream) {
    return absl::InvalidArgumentError("stream_options: set, expected stream true beside it");
  }
  Fields options(*value, "stream_options.");
  LK_RETURN_IF_ERROR(options.Read("include_usage", common.includes_usage));
  LK_RETURN_IF_ERROR(options.Read("continuous_usage_stats", common.includes_continuous_usage));
  options.Ignore("include_obfuscation");
  return options.CheckAll();
}

absl::Status ReadAttention(const json& value, CommonRequest& common) {
  v1::AttentionOptions proto;
  LK_RETURN_IF_ERROR(ReadProto(value, "lowkey.attention", proto));
  std::optional<std::string> named = std::move(common.request.attention.mechanism);
  common.request.attention = FromProto(proto);
  std::optional<std::string>& mechanism = common.request.attention.mechanism;
  if (named.has_value() && mechanism.has_value() && *named != *mechanism) {
    return absl::InvalidArgumentError(absl::StrCat("lowkey.attention.mechanism: \"", *mechanism,
                                                   "\", but the model's id says \"", *named,
                                                   "\", expected one of them"));
  }
  if (named.has_value()) mechanism = std::move(named);
  return absl::OkStatus();
}

absl::Status ReadLowkey(Fields& fields, CommonRequest& common) {
  const json* value = fields.Take("lowkey");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_object()) return fields.Error("lowkey", "an object");
  Fields lowkey(*value, "lowkey.");
  if (const json* attention = lowkey.Take("attention"); attention != nullptr) {
    LK_RETURN_IF_ERROR(ReadAttention(*attention, common));
  }
  LK_RETURN_IF_ERROR(lowkey.Read("prefix_marks", common.request.prefix_marks));
  LK_RETURN_IF_ERROR(lowkey.Read("draft", common.request.draft));
  std::optional<int32_t> timeout_ms;
  LK_RETURN_IF_ERROR(lowkey.Read("timeout_ms", timeout_ms));
  if (timeout_ms.has_value()) {
    if (*timeout_ms < 1) return lowkey.Error("timeout_ms", "1 or more milliseconds");
    common.deadline = SteadyNow() + absl::Milliseconds(*timeout_ms);
  }
  return lowkey.CheckAll();
}

// Fields that other servers know, at the values that change nothing.
absl::Status ReadAccepted(Fields& fields, const CommonRequest& common) {
  for (const char* key : kWithoutEffect) fields.Ignore(key);
  for (const char* key : kUnsupported) LK_RETURN_IF_ERROR(fields.Refuse(key));
  LK_RETURN_IF_ERROR(fields.Accept("modalities", json::array({"text"})));
  LK_RETURN_IF_ERROR(fields.Accept("functions", json::array()));
  LK_RETURN_IF_ERROR(fields.Accept("verbosity", "medium"));
  LK_RETURN_IF_ERROR(fields.Accept("use_beam_search", false));
  LK_RETURN_IF_ERROR(fields.Accept("skip_special_tokens", true));
  LK_RETURN_IF_ERROR(fields.Accept("spaces_between_special_tokens", true));
  LK_RETURN_IF_ERROR(fields.Accept("include_stop_str_in_output", false));
  LK_RETURN_IF_ERROR(fields.Accept("length_penalty", 1.0));
  LK_RETURN_IF_ERROR(fields.Accept("early_stopping", false));
  LK_RETURN_IF_ERROR(fields.Accept("best_of", common.request.n.value_or(1)));
  // The end of the text is the only end before max_tokens that min_tokens puts off.
  if (!common.request.ignore_eos) return fields.Accept("min_tokens", 0);
  fields.Ignore("min_tokens");
  return absl::OkStatus();
}

// The id comes back in a header field.
absl::Status ReadId(Fields& fields, const CallId& own, CommonRequest& common) {
  std::optional<std::string> given;
  LK_RETURN_IF_ERROR(fields.Read("request_id", given));
  if (given.value_or("").empty()) {
    common.answer_id = own.text;
    common.request.request_id = GenerationId(own);
    return absl::OkStatus();
  }
  common.answer_id = common.request.request_id = *given;
  if (IsRequestId(*given)) return absl::OkStatus();
  return fields.Error("request_id", absl::StrCat("at most ", kMaxRequestIdBytes,
                                                 " letters, digits and signs of ASCII"));
}

}  // namespace

absl::Status ReadCommon(const TextService& service, const OpenAiOptions& options, const CallId& id,
                        Fields& fields, CommonRequest& common) {
  GenerationRequest& request = common.request;
  std::optional<std::string> model;
  LK_RETURN_IF_ERROR(fields.Read("model", model));
  if (!model.has_value()) {
    return fields.Error("model", absl::StrCat("\"", service.options().model_name, "\""));
  }
  LK_ASSIGN_OR_RETURN(ModelChoice choice, ResolveModel(service, *model));
  common.model = *std::move(model);
  request.attention.mechanism = std::move(choice.mechanism);
  LK_RETURN_IF_ERROR(ReadSampling(options, fields, request.sampling));
  LK_RETURN_IF_ERROR(fields.Read("n", request.n));
  LK_RETURN_IF_ERROR(ReadStop(fields, request.stop_texts));
  LK_RETURN_IF_ERROR(fields.Read("stop_token_ids", request.stop_tokens));
  LK_RETURN_IF_ERROR(fields.Read("ignore_eos", request.ignore_eos));
  LK_RETURN_IF_ERROR(fields.Read("priority", request.priority));
  LK_RETURN_IF_ERROR(ReadId(fields, id, common));
  LK_RETURN_IF_ERROR(ReadStream(fields, common));
  LK_RETURN_IF_ERROR(ReadLowkey(fields, common));
  return ReadAccepted(fields, common);
}

absl::StatusOr<TokenList> PromptTokens(const TextService& service, const RpcContext& context,
                                       const CallState& call,
                                       std::variant<std::string, Conversation> input) {
  TokenizeRequest request;
  request.input = std::move(input);
  request.is_charged = false;
  request.tenant = context.tenant;
  request.deadline = context.deadline;
  request.is_cancelled = [&call] { return call.is_over(); };
  LK_ASSIGN_OR_RETURN(TokenizeResult result, service.Tokenize(request));
  return std::move(result.tokens);
}

}  // namespace lowkey

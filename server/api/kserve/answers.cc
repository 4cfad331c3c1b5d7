#include "server/api/kserve/answers.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/api/kserve/tensors.h"

namespace lowkey {
namespace {

using inference::ModelInferResponse;
using Json = nlohmann::ordered_json;

constexpr char kFinalResponse[] = "triton_final_response";

std::string_view ReasonText(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_TOKEN:
    case v1::FINISH_REASON_STOP_TEXT:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    default:
      return "abort";
  }
}

void SetText(const char* name, const std::string& value, ModelInferResponse& response) {
  (*response.mutable_parameters())[name].set_string_param(value);
}
void SetNumber(const char* name, int64_t value, ModelInferResponse& response) {
  (*response.mutable_parameters())[name].set_int64_param(value);
}

// How the request ran, as parameters of its last answer. Clients of KServe know no unsigned
// parameters, so the seed is a text.
void AddReport(const v1::FinalEvent& event, ModelInferResponse& response) {
  const v1::AttentionReport& attention = event.attention();
  SetText("request_id", event.request_id(), response);
  SetText("seed", absl::StrCat(event.seed()), response);
  SetNumber("cached_tokens", event.usage().cached_tokens(), response);
  SetText("attention", attention.mechanism(), response);
  SetText("attention_reason", attention.reason(), response);
  (*response.mutable_parameters())["attention_approximate"].set_bool_param(attention.approximate());
  SetNumber("cache_bytes", attention.cache_bytes(), response);
  SetNumber("peak_cache_bytes", attention.peak_cache_bytes(), response);
  SetNumber("standard_cache_bytes", attention.standard_cache_bytes(), response);
}

Json LogprobJson(float logprob, const Json& rank, const std::string& text) {
  return {{"logprob", logprob}, {"rank", rank}, {"decoded_token", text}};
}

}  // namespace

ModelInferResponse AnswerMaker::Begin() const {
  ModelInferResponse response;
  response.set_id(options_.id);
  response.set_model_name(model_);
  response.set_model_version(std::string(kModelVersion));
  return response;
}

// In the form of vLLM's backend for Triton: for each token an object by token id, of the token
// itself and of its alternatives.
std::string AnswerMaker::LogprobsJson(const v1::ChoiceDelta& delta) const {
  Json tokens = Json::array();
  for (const v1::Token& token : delta.tokens()) {
    Json entry = Json::object();
    const auto text = tokenizer_.Decode({token.token_id()}, {.keep_leading_space = true});
    entry[absl::StrCat(token.token_id())] =
        LogprobJson(token.logprob(), nullptr, text.value_or(std::string()));
    int rank = 0;
    for (const v1::TokenLogprob& other : token.top_logprobs()) {
      entry[absl::StrCat(other.token_id())] = LogprobJson(other.logprob(), ++rank, other.text());
    }
    tokens.push_back(std::move(entry));
  }
  return tokens.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void AnswerMaker::AddDeltas(const std::vector<const v1::ChoiceDelta*>& deltas,
                            const std::string& prompt, ModelInferResponse& response) {
  std::vector<std::string> texts, logprobs;
  std::vector<float> sums;
  std::vector<uint32_t> counts;
  for (size_t i = 0; i < deltas.size(); ++i) {
    static const v1::ChoiceDelta kNothing;
    const v1::ChoiceDelta& delta = deltas[i] == nullptr ? kNothing : *deltas[i];
    if (options_.text) texts.push_back(absl::StrCat(prompt, delta.text()));
    if (options_.logprobs) logprobs.push_back(LogprobsJson(delta));
    for (const v1::Token& token : delta.tokens()) cumulative_logprobs_[i] += token.logprob();
    sums.push_back(static_cast<float>(cumulative_logprobs_[i]));
    counts.push_back(static_cast<uint32_t>(delta.tokens_size()));
  }
  if (options_.text) AddTexts("text_output", texts, response);
  if (options_.cumulative_logprob) AddFloats("cumulative_logprob", sums, response);
  if (options_.logprobs) AddTexts("logprobs", logprobs, response);
  if (options_.num_output_tokens) AddCounts("num_output_tokens", counts, response);
}

void AnswerMaker::AddEnd(const v1::FinalEvent& event, ModelInferResponse& response) const {
  if (options_.finish_reason) {
    std::vector<std::string> reasons;
    for (const v1::ChoiceFinish& choice : event.choices()) {
      reasons.emplace_back(ReasonText(choice.reason()));
    }
    AddTexts("finish_reason", reasons, response);
  }
  if (options_.num_input_tokens) {
    AddCounts("num_input_tokens", {static_cast<uint32_t>(event.usage().prompt_tokens())}, response);
  }
}

ModelInferResponse AnswerMaker::Whole(const v1::GenerateResponse& whole) {
  ModelInferResponse response = Begin();
  std::vector<const v1::ChoiceDelta*> deltas(static_cast<size_t>(options_.n_choices));
  for (size_t i = 0; i < deltas.size() && static_cast<int>(i) < whole.choices_size(); ++i) {
    deltas[i] = &whole.choices(static_cast<int>(i));
  }
  AddDeltas(deltas, options_.prompt, response);
  AddEnd(whole.final(), response);
  AddReport(whole.final(), response);
  return response;
}

ModelInferResponse AnswerMaker::Delta(const v1::ChoiceDelta& delta) {
  ModelInferResponse response = Begin();
  std::vector<const v1::ChoiceDelta*> deltas(static_cast<size_t>(options_.n_choices));
  const auto choice = static_cast<size_t>(delta.choice());
  if (choice < deltas.size()) deltas[choice] = &delta;
  AddDeltas(deltas, "", response);
  return response;
}

ModelInferResponse AnswerMaker::End(const v1::FinalEvent& event) {
  ModelInferResponse response = Begin();
  AddDeltas(std::vector<const v1::ChoiceDelta*>(static_cast<size_t>(options_.n_choices)), "",
            response);
  AddEnd(event, response);
  AddReport(event, response);
  return response;
}

ModelInferResponse AnswerMaker::Empty(const v1::FinalEvent& event) const {
  ModelInferResponse response = Begin();
  AddReport(event, response);
  return response;
}

std::string StreamAnswer(ModelInferResponse answer, bool is_final) {
  inference::ModelStreamInferResponse response;
  (*answer.mutable_parameters())[kFinalResponse].set_bool_param(is_final);
  *response.mutable_infer_response() = std::move(answer);
  return response.SerializeAsString();
}

std::string StreamError(const std::string& id, const absl::Status& status) {
  inference::ModelStreamInferResponse response;
  const std::string name = absl::StatusCodeToString(status.code());
  response.set_error_message(absl::StrCat("[", name, "] ", status.message()));
  response.mutable_infer_response()->set_id(id);
  (*response.mutable_infer_response()->mutable_parameters())[kFinalResponse].set_bool_param(true);
  return response.SerializeAsString();
}

}  // namespace lowkey

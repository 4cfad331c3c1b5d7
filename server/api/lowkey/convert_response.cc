// Converts our results to lowkey.v1 messages.
#include "server/api/lowkey/convert_response.h"

#include <string>
#include <vector>

#include "engine/config/attention_option_table.h"
#include "engine/config/limits.h"
#include "server/api/lowkey/convert_request.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

v1::FinishReason ToProto(FinishReason reason) {
  static constexpr v1::FinishReason kByReason[] = {
      v1::FINISH_REASON_STOP_TOKEN, v1::FINISH_REASON_LENGTH,   v1::FINISH_REASON_STOP_TEXT,
      v1::FINISH_REASON_CANCELLED,  v1::FINISH_REASON_DEADLINE, v1::FINISH_REASON_ERROR};
  return kByReason[static_cast<size_t>(reason)];
}

std::string TokenText(int32_t token, const Tokenizer& tokenizer) {
  return tokenizer.Decode({token}, {.keep_leading_space = true}).value_or(std::string());
}

void AddAlternatives(const std::vector<TokenLogprob>& top, const Tokenizer& tokenizer,
                     v1::Token& proto) {
  for (const TokenLogprob& alternative : top) {
    v1::TokenLogprob& entry = *proto.add_top_logprobs();
    entry.set_token_id(alternative.token);
    entry.set_text(TokenText(alternative.token, tokenizer));
    entry.set_logprob(alternative.logprob);
  }
}

v1::AttentionReport ToProto(const AttentionReport& report) {
  v1::AttentionReport proto;
  proto.set_mechanism(std::string(MechanismName(report.mechanism)));
  proto.set_options(report.label);
  proto.set_reason(report.reason);
  if (report.mechanism == Mechanism::kAtp) proto.set_rank(report.rank);
  proto.set_compressed_blocks(report.n_compressed_blocks);
  proto.set_state_tokens(report.n_state_tokens);
  proto.set_coded_tokens(report.n_coded_tokens);
  proto.set_cache_bytes(report.cache_bytes);
  proto.set_peak_cache_bytes(report.peak_cache_bytes);
  proto.set_standard_cache_bytes(report.standard_cache_bytes);
  for (const Crossover& crossover : report.crossovers) {
    v1::Crossover& entry = *proto.add_crossovers();
    entry.set_from(std::string(MechanismName(crossover.from)));
    entry.set_to(std::string(MechanismName(crossover.to)));
    entry.set_prompt_tokens(crossover.tokens);
  }
  return proto;
}

v1::Architecture ToProto(const ModelConfig& config) {
  v1::Architecture proto;
  proto.set_name(config.architecture);
  proto.set_vocab_size(config.vocab_size);
  proto.set_hidden_dim(config.hidden_dim);
  proto.set_ffn_dim(config.ffn_dim);
  proto.set_n_layers(config.n_layers);
  proto.set_n_heads(config.n_heads);
  proto.set_n_kv_heads(config.n_kv_heads);
  proto.set_head_dim(config.head_dim);
  if (config.sliding_window.has_value()) proto.set_sliding_window(*config.sliding_window);
  if (config.bos_token.has_value()) proto.set_bos_token_id(*config.bos_token);
  proto.mutable_eos_token_ids()->Assign(config.eos_tokens.begin(), config.eos_tokens.end());
  return proto;
}

v1::SamplingOptions ToProto(const SamplingOptions& sampling) {
  v1::SamplingOptions proto;
  proto.set_temperature(sampling.temperature);
  proto.set_top_k(sampling.top_k);
  proto.set_top_p(sampling.top_p);
  proto.set_min_p(sampling.min_p);
  proto.set_repetition_penalty(sampling.repetition_penalty);
  proto.set_presence_penalty(sampling.presence_penalty);
  proto.set_frequency_penalty(sampling.frequency_penalty);
  for (const auto& [id, bias] : sampling.logit_bias) (*proto.mutable_logit_bias())[id] = bias;
  return proto;
}

v1::Limits ToProto(const EngineLimits& limits) {
  v1::Limits proto;
  proto.set_context_tokens(limits.context_tokens);
  proto.set_max_running_seqs(limits.max_running_seqs);
  proto.set_cache_bytes(limits.cache_bytes);
  proto.set_max_choices(kMaxChoices);
  proto.set_max_stop_texts(static_cast<int32_t>(kMaxStopTexts));
  proto.set_max_stop_text_bytes(static_cast<int32_t>(kMaxStopTextBytes));
  proto.set_max_logprobs(kMaxLogprobs);
  proto.set_max_continuations(static_cast<int32_t>(kMaxContinuations));
  proto.set_max_message_bytes(static_cast<int64_t>(kMaxMessageBytes));
  return proto;
}

}  // namespace

v1::ChoiceDelta ToProto(const ChoiceDelta& delta, const Tokenizer& tokenizer) {
  v1::ChoiceDelta proto;
  proto.set_choice(delta.choice);
  proto.set_text(delta.text);
  if (delta.token.has_value()) {
    v1::Token& token = *proto.add_tokens();
    token.set_token_id(delta.token->token);
    if (delta.token->logprob.has_value()) token.set_logprob(*delta.token->logprob);
    AddAlternatives(delta.token->top_logprobs, tokenizer, token);
  }
  return proto;
}

v1::PromptLogprobs ToProto(const std::vector<PromptLogprob>& logprobs, const Tokenizer& tokenizer) {
  v1::PromptLogprobs proto;
  for (const PromptLogprob& logprob : logprobs) {
    v1::PromptToken& entry = *proto.add_tokens();
    entry.set_position(logprob.position);
    entry.mutable_token()->set_token_id(logprob.token.token);
    entry.mutable_token()->set_logprob(logprob.token.logprob);
    AddAlternatives(logprob.top, tokenizer, *entry.mutable_token());
  }
  return proto;
}

v1::FinalEvent ToProto(const GenerationResult& result) {
  v1::FinalEvent proto;
  proto.set_request_id(result.request_id);
  proto.set_model(result.model);
  int32_t n_generated = 0;
  for (size_t i = 0; i < result.choices.size(); ++i) {
    const ChoiceFinish& finish = result.choices[i];
    v1::ChoiceFinish& choice = *proto.add_choices();
    choice.set_choice(static_cast<int32_t>(i));
    choice.set_reason(ToProto(finish.reason));
    if (finish.stop_text.has_value()) choice.set_stop_text(*finish.stop_text);
    choice.set_generated_tokens(finish.n_generated);
    n_generated += finish.n_generated;
  }
  const FinalEvent& event = result.engine;
  proto.mutable_usage()->set_prompt_tokens(event.n_prompt_tokens);
  proto.mutable_usage()->set_cached_tokens(event.n_cached_tokens);
  proto.mutable_usage()->set_generated_tokens(n_generated);
  proto.mutable_usage()->set_drafted_tokens(event.n_drafted_tokens);
  proto.mutable_usage()->set_accepted_tokens(event.n_accepted_tokens);
  proto.mutable_timings()->set_queue_us(event.timings.queue_us);
  proto.mutable_timings()->set_prefill_us(event.timings.prefill_us);
  proto.mutable_timings()->set_decode_us(event.timings.decode_us);
  proto.mutable_timings()->set_ttft_us(event.timings.ttft_us);
  proto.set_seed(event.seed);
  *proto.mutable_attention() = ToProto(event.attention);
  proto.mutable_attention()->set_approximate(result.engine.attention.is_approximate);
  return proto;
}

v1::ScoreResponse ToProto(const ScoreResult& result) {
  v1::ScoreResponse proto;
  for (const ContinuationScore& score : result.scores) {
    v1::ContinuationScore& entry = *proto.add_scores();
    entry.set_logprob(score.logprob);
    entry.set_greedy(score.is_greedy);
    for (const TokenLogprob& token : score.tokens) {
      v1::Token& scored = *entry.add_tokens();
      scored.set_token_id(token.token);
      scored.set_logprob(token.logprob);
    }
  }
  proto.set_best(static_cast<int32_t>(result.best));
  proto.mutable_usage()->set_prompt_tokens(static_cast<int32_t>(result.n_prompt_tokens));
  proto.mutable_usage()->set_cached_tokens(static_cast<int32_t>(result.n_cached_tokens));
  return proto;
}

void FillStats(const EngineStats& stats, v1::StatsResponse& response) {
  response.set_running_requests(stats.n_running_requests);
  response.set_waiting_requests(stats.n_waiting_requests);
  response.set_finished_requests(stats.n_finished_requests);
  response.set_cancelled_requests(stats.n_cancelled_requests);
  response.set_prompt_tokens(stats.n_prompt_tokens);
  response.set_generated_tokens(stats.n_generated_tokens);
  response.set_steps(stats.n_steps);
  response.set_cache_bytes_total(stats.cache_bytes_total);
  response.set_cache_bytes_used(stats.cache_bytes_used);
  response.set_weight_bytes(stats.weight_bytes);
  response.set_dtype(stats.dtype);
  response.set_instruction_set(stats.processor);
  response.set_threads(stats.n_threads);
  response.set_preemptions(stats.n_preemptions);
  response.set_cached_prompt_tokens(stats.n_prefix_tokens);
  response.set_cache_bytes_prefix(stats.cache_bytes_prefix);
  response.set_drafted_tokens(stats.n_drafted_tokens);
  response.set_accepted_tokens(stats.n_accepted_tokens);
}

v1::MeasuredQuality ToProto(const MeasuredQuality& measured) {
  v1::MeasuredQuality proto;
  proto.set_options(AttentionLabel(measured.options));
  for (const PerplexityRatios::Point& point : measured.ratios.points()) {
    v1::PerplexityRatio& ratio = *proto.add_perplexity_ratios();
    ratio.set_tokens(point.n_tokens);
    ratio.set_ratio(point.ratio);
  }
  const auto add = [](const std::vector<MeasuredShare>& from, auto& to) {
    for (const MeasuredShare& point : from) {
      v1::MeasuredShare& share = *to.Add();
      share.set_tokens(point.n_tokens);
      share.set_share(point.share);
    }
  };
  add(measured.recalled_digits, *proto.mutable_recalled_digits());
  add(measured.copied_tokens, *proto.mutable_copied_tokens());
  if (measured.right_answers.has_value()) proto.set_right_answers(*measured.right_answers);
  return proto;
}

v1::Model DescribeModel(const TextService& service) {
  const TextService::Options& options = service.options();
  v1::Model model;
  model.set_name(options.model_name);
  *model.mutable_architecture() = ToProto(service.engine().config());
  *model.mutable_limits() = ToProto(service.engine().limits());
  for (const MechanismInfo& mechanism : service.engine().mechanisms()) {
    v1::Mechanism& entry = *model.add_mechanisms();
    entry.set_name(std::string(MechanismName(mechanism.id)));
    entry.set_approximate(mechanism.is_approximate);
    if (mechanism.max_tokens.has_value()) entry.set_max_tokens(*mechanism.max_tokens);
    entry.set_cache_bytes_per_token(mechanism.cache_bytes_per_token);
    for (const PerplexityRatios::Point& point : mechanism.perplexity_ratios.points()) {
      entry.set_perplexity_ratio(point.ratio);
      v1::PerplexityRatio& measured = *entry.add_perplexity_ratios();
      measured.set_tokens(point.n_tokens);
      measured.set_ratio(point.ratio);
    }
    for (const MeasuredQuality& m : mechanism.measured) *entry.add_measured() = ToProto(m);
  }
  *model.mutable_defaults()->mutable_sampling() = ToProto(options.defaults.sampling);
  *model.mutable_defaults()->mutable_attention() = ToProto(options.defaults);
  model.mutable_defaults()->set_max_new_tokens(options.defaults.max_new_tokens);
  model.mutable_defaults()->set_draft(std::string(NameOf(options.defaults.draft)));
  const EngineStats stats = service.engine().Stats();
  model.set_dtype(stats.dtype);
  model.set_weight_bytes(stats.weight_bytes);
  const auto& chat_template = options.chat_templates.Find(ChatTemplates::Tools::kNone);
  if (!chat_template.ok()) model.set_chat_refusal(std::string(chat_template.status().message()));
  return model;
}

}  // namespace lowkey

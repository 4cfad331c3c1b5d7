#include "server/api/openai/answer.h"

#include <utility>

#include "server/api/calls/event_queue.h"
#include "server/api/http/proto_json.h"

namespace lowkey {
namespace {

std::string HeadOf(const AnswerForm& form, std::string_view object) {
  std::string head;
  JsonWriter writer(head);
  writer.BeginObject().Key("id").Text(form.id).Key("object").Text(object);
  writer.Key("created").Int(form.created).Key("model").Text(form.model);
  writer.Key("system_fingerprint").Text(form.fingerprint);
  return head + ",\"choices\":[";
}

}  // namespace

std::string_view FinishReasonOf(const v1::ChoiceFinish& finish) {
  switch (finish.reason()) {
    case v1::FINISH_REASON_STOP_TOKEN:
    case v1::FINISH_REASON_STOP_TEXT:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
      return "length";
    default:
      return "";
  }
}

int64_t CountReasoning(const Tokenizer& tokenizer, const std::string& text) {
  const absl::StatusOr<std::vector<int32_t>> ids =
      tokenizer.Encode(text, {.add_bos = false, .add_eos = false});
  return ids.ok() ? static_cast<int64_t>(ids->size()) : 0;
}

void WriteReport(const v1::FinalEvent& final, JsonWriter& writer) {
  writer.BeginObject().Key("attention");
  WriteProto(final.attention(), writer);
  writer.Key("timings");
  WriteProto(final.timings(), writer);
  writer.Key("seed").Unsigned(final.seed());
  writer.Key("drafted_tokens").Int(final.usage().drafted_tokens());
  writer.Key("accepted_tokens").Int(final.usage().accepted_tokens());
  writer.EndObject();
}

Answer::Answer(AnswerForm form, std::string_view chunk_object, std::string_view whole_object)
    : form_(std::move(form)),
      chunk_head_("data: " + HeadOf(form_, chunk_object)),
      whole_head_(HeadOf(form_, whole_object)),
      choices_(form_.n_prompts * form_.n),
      whole_choices_(form_.n_prompts),
      finals_(form_.n_prompts) {}

void Answer::TakePromptLogprobs(size_t, const v1::PromptLogprobs&) {}

size_t Answer::IndexOf(size_t prompt, int32_t choice) const {
  return prompt * form_.n + static_cast<size_t>(choice);
}

std::string Answer::Write(size_t prompt, const v1::GenerateEvent& event) {
  if (event.has_final()) return WriteFinal(prompt, event.final());
  if (event.has_prompt_logprobs()) {
    TakePromptLogprobs(prompt, event.prompt_logprobs());
    return "";
  }
  std::string out;
  const v1::ChoiceDelta& delta = event.delta();
  const size_t index = IndexOf(prompt, delta.choice());
  std::optional<v1::ChoiceDelta>& waiting = choices_[index].waiting;
  if (waiting.has_value() && delta.tokens_size() == 0) {
    Append(delta, *waiting);  // text that was held back, and no token: no chunk of its own
    return "";
  }
  if (waiting.has_value()) AppendChunk(index, *waiting, nullptr, nullptr, out);
  waiting = delta;
  return out;
}

std::string Answer::Flush(size_t prompt) {
  std::string out;
  for (size_t i = 0; i < form_.n; ++i) {
    std::optional<v1::ChoiceDelta>& waiting = choices_[prompt * form_.n + i].waiting;
    if (!waiting.has_value()) continue;
    AppendChunk(prompt * form_.n + i, *waiting, nullptr, nullptr, out);
    waiting.reset();
  }
  return out;
}

std::string Answer::WriteFinal(size_t prompt, const v1::FinalEvent& final) {
  AddUsage(final.usage());
  std::string out;
  for (const v1::ChoiceFinish& choice : final.choices()) {
    const size_t index = IndexOf(prompt, choice.choice());
    v1::ChoiceDelta delta;
    if (choices_[index].waiting.has_value()) delta = *std::move(choices_[index].waiting);
    choices_[index].waiting.reset();
    const Finish finish = {FinishReasonOf(choice), choice};
    const bool is_last = choice.choice() + 1 == final.choices_size();
    // The error that ended the others follows as an event of its own.
    if (!finish.reason.empty()) {
      AppendChunk(index, delta, &finish, is_last ? &final : nullptr, out);
    } else if (delta.tokens_size() > 0 || !delta.text().empty()) {
      AppendChunk(index, delta, nullptr, nullptr, out);
    }
  }
  return out;
}

void Answer::AppendChunk(size_t index, const v1::ChoiceDelta& delta, const Finish* finish,
                         const v1::FinalEvent* final, std::string& out) {
  n_streamed_ += delta.tokens_size();
  const size_t n_bytes = out.size();
  out += chunk_head_;
  JsonWriter choice(out);
  if (!WriteChunk(index, delta, finish, choice)) return out.resize(n_bytes);
  out += ']';
  if (form_.includes_continuous_usage) {
    out += ",\"usage\":";
    JsonWriter usage(out);
    WriteUsage(form_.n_prompt_tokens, n_streamed_, 0, usage);
  } else if (form_.includes_usage) {
    out += ",\"usage\":null";
  }
  if (final != nullptr) {
    out += ",\"lowkey\":";
    JsonWriter report(out);
    WriteReport(*final, report);
  }
  out += "}\n\n";
}

void Answer::AddUsage(const v1::Usage& usage) {
  n_prompt_ += usage.prompt_tokens();
  n_generated_ += usage.generated_tokens();
  n_cached_ += usage.cached_tokens();
}

void Answer::WriteUsage(int64_t n_prompt, int64_t n_generated, int64_t n_cached,
                        JsonWriter& writer) const {
  writer.BeginObject().Key("prompt_tokens").Int(n_prompt);
  writer.Key("completion_tokens").Int(n_generated);
  writer.Key("total_tokens").Int(n_prompt + n_generated);
  writer.Key("prompt_tokens_details").BeginObject().Key("cached_tokens").Int(n_cached).EndObject();
  if (const std::optional<int64_t> n = n_reasoning_tokens(); n.has_value()) {
    writer.Key("completion_tokens_details").BeginObject();
    writer.Key("reasoning_tokens").Int(*n).EndObject();
  }
  writer.EndObject();
}

std::string Answer::End() {
  std::string out;
  if (form_.includes_usage) {
    out += chunk_head_ + "],\"usage\":";
    JsonWriter usage(out);
    WriteUsage(n_prompt_, n_generated_, n_cached_, usage);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
  return out;
}

void Answer::Add(size_t prompt, const v1::GenerateResponse& response) {
  AddUsage(response.final().usage());
  finals_[prompt] = response.final();
  JsonWriter writer(whole_choices_[prompt]);
  for (const v1::ChoiceFinish& choice : response.final().choices()) {
    const Finish finish = {FinishReasonOf(choice), choice};
    static const v1::ChoiceDelta kNothing;
    const bool has_text = choice.choice() < response.choices_size();
    WriteChoice(IndexOf(prompt, choice.choice()),
                has_text ? response.choices(choice.choice()) : kNothing, response.prompt_logprobs(),
                finish, writer);
  }
  n_added_bytes_ += whole_choices_[prompt].size();
}

std::string Answer::Whole() {
  std::string out = whole_head_;
  for (size_t i = 0; i < whole_choices_.size(); ++i) {
    if (i > 0) out += ',';
    out += whole_choices_[i];
  }
  out += "],\"usage\":";
  JsonWriter usage(out);
  WriteUsage(n_prompt_, n_generated_, n_cached_, usage);
  out += ",\"lowkey\":";
  JsonWriter reports(out);
  if (finals_.size() > 1) reports.BeginArray();
  for (const v1::FinalEvent& final : finals_) WriteReport(final, reports);
  if (finals_.size() > 1) reports.EndArray();
  out += '}';
  return out;
}

}  // namespace lowkey

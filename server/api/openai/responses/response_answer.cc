#include "server/api/openai/responses/response_answer.h"

#include <utility>
#include <vector>

#include "server/api/http/api_error.h"
#include "server/api/openai/answer.h"

namespace lowkey {

ResponseAnswer::ResponseAnswer(ResponseRequest request, std::unique_ptr<ToolParser> parser,
                               const Tokenizer& tokenizer)
    : request_(std::move(request)),
      parser_(std::move(parser)),
      tokenizer_(tokenizer),
      events_(request_.form),
      items_(request_.id, events_) {}

void ResponseAnswer::WriteUsage(const v1::Usage& usage, JsonWriter& writer) const {
  writer.BeginObject().Key("input_tokens").Int(usage.prompt_tokens());
  writer.Key("input_tokens_details").BeginObject();
  writer.Key("cached_tokens").Int(usage.cached_tokens()).EndObject();
  writer.Key("output_tokens").Int(usage.generated_tokens());
  writer.Key("output_tokens_details").BeginObject();
  writer.Key("reasoning_tokens").Int(CountReasoning(tokenizer_, reasoning_)).EndObject();
  writer.Key("total_tokens").Int(usage.prompt_tokens() + usage.generated_tokens()).EndObject();
}

void ResponseAnswer::WriteResponse(JsonWriter& writer) const {
  writer.BeginObject().Key("id").Text("resp_" + request_.id).Key("object").Text("response");
  writer.Key("created_at").Int(request_.created).Key("status").Text(status_);
  writer.Key("error");
  error_.is_null() ? writer.Null() : writer.Raw(error_.dump());
  writer.Key("incomplete_details");
  if (status_ == "incomplete") {
    writer.BeginObject().Key("reason").Text("max_output_tokens").EndObject();
  } else {
    writer.Null();
  }
  writer.Raw(request_.echo);
  writer.Key("output").Raw("[" + items_.json() + "]").Key("usage");
  if (final_.has_value()) {
    WriteUsage(final_->usage(), writer);
    writer.Key("lowkey");
    WriteReport(*final_, writer);
  } else {
    writer.Null();
  }
  writer.EndObject();
}

void ResponseAnswer::AddResponse(std::string_view type) {
  events_.Add(type, [this](JsonWriter& writer) {
    writer.Key("response");
    WriteResponse(writer);
  });
}

void ResponseAnswer::Begin() {
  if (std::exchange(is_begun_, true)) return;
  AddResponse("response.created");
  AddResponse("response.in_progress");
}

void ResponseAnswer::AddText(const std::string& text) {
  if (text.empty()) return;  // of a token that is a part of a character
  if (parser_ == nullptr) return items_.Add({.text = text});
  std::vector<ToolEvent> parts;
  parser_->Add(text, parts);
  AddParts(parts);
}

void ResponseAnswer::AddParts(const std::vector<ToolEvent>& parts) {
  for (const ToolEvent& part : parts) {
    if (part.kind == ToolEvent::Kind::kReasoning) reasoning_ += part.text;
    items_.Add(part);
  }
}

void ResponseAnswer::Finish(const v1::FinalEvent& final) {
  final_ = final;
  const std::string_view reason = FinishReasonOf(final.choices(0));
  if (reason.empty()) return;  // the error follows
  if (parser_ != nullptr) {
    std::vector<ToolEvent> parts;
    parser_->End(parts);
    AddParts(parts);
  }
  status_ = reason == "length" ? "incomplete" : "completed";
  items_.End(status_);
  AddResponse(status_ == "incomplete" ? "response.incomplete" : "response.completed");
}

std::string ResponseAnswer::Write(size_t, const v1::GenerateEvent& event) {
  if (event.has_delta()) {
    Begin();
    AddText(event.delta().text());
  } else if (event.has_final() && event.final().choices_size() > 0) {
    if (!FinishReasonOf(event.final().choices(0)).empty()) Begin();
    Finish(event.final());
  }
  return events_.Take();
}

std::string ResponseAnswer::Error(const absl::Status& status) {
  const nlohmann::json error = nlohmann::json::parse(ToApiError(status).json)["error"];
  if (is_begun_) {
    status_ = "failed";
    error_ = {{"code", error["code"]}, {"message", error["message"]}};
    AddResponse("response.failed");
    return events_.Take();
  }
  events_.Add("error", [&error](JsonWriter& writer) {
    for (const char* key : {"code", "message", "param"}) writer.Key(key).Raw(error[key].dump());
  });
  return events_.Take();
}

void ResponseAnswer::Add(size_t, const v1::GenerateResponse& response) {
  if (response.choices_size() > 0) AddText(response.choices(0).text());
  if (response.final().choices_size() > 0) Finish(response.final());
}

std::string ResponseAnswer::Whole() {
  std::string json;
  JsonWriter writer(json);
  WriteResponse(writer);
  return json;
}

}  // namespace lowkey

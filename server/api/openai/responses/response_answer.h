#ifndef LOWKEY_SERVER_API_OPENAI_RESPONSES_RESPONSE_ANSWER_H_
#define LOWKEY_SERVER_API_OPENAI_RESPONSES_RESPONSE_ANSWER_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lowkey/v1/generation.pb.h"
#include "server/api/openai/generation_call.h"
#include "server/api/openai/responses/output_items.h"
#include "server/api/openai/tools/tool_parser.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// The request's part in its response.
struct ResponseRequest {
  std::string id;  // of the request
  ResponseForm form = ResponseForm::kWhole;
  int64_t created = 0;  // seconds since 1970
  // The members that repeat what the request asked for, without the object's braces, in one line.
  std::string echo;
};

// The answer of /v1/responses: one response, whole or as typed events.
class ResponseAnswer final : public AnswerWriter {
 public:
  // A null parser takes all text for the message's. The tokenizer must outlive the answer.
  ResponseAnswer(ResponseRequest request, std::unique_ptr<ToolParser> parser,
                 const Tokenizer& tokenizer);

  std::string Write(size_t prompt, const v1::GenerateEvent& event) override;
  std::string Flush(size_t) override { return ""; }
  std::string End() override { return ""; }
  // A response that has begun fails; before that there is only the error.
  std::string Error(const absl::Status& status) override;
  void Add(size_t prompt, const v1::GenerateResponse& response) override;
  std::string Whole() override;

 private:
  void Begin();
  void AddText(const std::string& text);
  void AddParts(const std::vector<ToolEvent>& parts);
  void Finish(const v1::FinalEvent& final);
  // Adds an event with the whole response.
  void AddResponse(std::string_view type);
  void WriteResponse(JsonWriter& writer) const;
  void WriteUsage(const v1::Usage& usage, JsonWriter& writer) const;

  const ResponseRequest request_;
  const std::unique_ptr<ToolParser> parser_;
  const Tokenizer& tokenizer_;
  std::string reasoning_;
  ResponseEvents events_;
  OutputItems items_;
  bool is_begun_ = false;
  std::string_view status_ = "in_progress";
  nlohmann::json error_;  // of a response that failed: its code and message
  std::optional<v1::FinalEvent> final_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_RESPONSES_RESPONSE_ANSWER_H_

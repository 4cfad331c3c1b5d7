// One input is a byte that names an endpoint and a body, which is read as that endpoint's. What is
// refused has a status of the client's own making and an error object that is JSON; what is read is
// bounded; a member's text is the same value as the member.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/base/status_macros.h"
#include "lowkey/v1/generation.pb.h"
#include "server/api/http/api_error.h"
#include "server/api/http/proto_json.h"
#include "server/api/openai/chat.h"
#include "server/api/openai/completions.h"
#include "server/api/openai/requests/fields.h"
#include "server/api/openai/requests/raw_json.h"
#include "server/api/openai/requests/request_reader.h"
#include "server/api/openai/tokens.h"
#include "server/request/call_id.h"
#include "server/request/limits.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"

namespace {

using nlohmann::json;

struct Served {
  lowkey::FakeEngine engine;
  lowkey::TextService service{
      engine,
      lowkey::TestTokenizer(),
      {"tales", {}, lowkey::ChatTemplates("{{ messages }}<tool_call><think>"), nullptr}};
  const lowkey::OpenAiOptions options = {};
  const lowkey::RpcContext context = [] {
    lowkey::RpcContext named;
    named.id = lowkey::TakeCallId(std::nullopt);
    return named;
  }();
  const lowkey::CallState call = {};
};

void CheckError(const absl::Status& status) {
  const lowkey::ApiError error = lowkey::ToApiError(status);
  LK_CHECK(error.http_status >= 400 && error.http_status < 500);
  const json object = json::parse(error.json, nullptr, false);
  LK_CHECK(object.is_object() && object["error"]["message"].is_string());
}

void CheckGenerations(const absl::StatusOr<lowkey::Generations>& read) {
  if (!read.ok()) return CheckError(read.status());
  LK_CHECK(!read->requests.empty() && read->requests.size() <= lowkey::kMaxCallChoices);
  LK_CHECK(read->writer != nullptr && !read->id.empty());
  for (const lowkey::GenerationRequest& request : read->requests) {
    LK_CHECK(request.stop_texts.size() <= lowkey::kMaxStopTexts);
    LK_CHECK(request.sampling.logit_bias.size() <= 1024);
    if (request.response_format.has_value()) {
      const lowkey::ToolCallsForm& calls = request.response_format->calls;
      LK_CHECK(calls.tools.size() <= lowkey::kMaxToolCalls);
      for (const auto& tool : calls.tools) LK_CHECK(json::accept(tool.schema));
    }
  }
}

void CheckMembers(const std::string& body) {
  const absl::StatusOr<json> object = lowkey::ParseBody(body);
  if (!object.ok()) return CheckError(object.status());
  for (const auto& [key, value] : object->items()) {
    const std::string_view text = lowkey::MemberText(body, key);
    const json again = json::parse(text, nullptr, false);
    LK_CHECK(!again.is_discarded() && again == value);
    const std::vector<std::string_view> elements = lowkey::ElementTexts(text);
    LK_CHECK(elements.size() == (value.is_array() ? value.size() : 0));
    for (size_t i = 0; i < elements.size(); ++i) {
      LK_CHECK(json::parse(elements[i], nullptr, false) == value[i]);
    }
  }
  LK_CHECK(object->contains("\x01none") || lowkey::MemberText(body, "\x01none").empty());
}

// What was read is written as JSON that reads as the same message.
void CheckProto(const std::string& body) {
  const absl::StatusOr<json> object = lowkey::ParseBody(body);
  lowkey::v1::ScoreRequest request, again;
  if (!object.ok()) return;
  const absl::Status status = lowkey::ReadProto(*object, "", request);
  if (!status.ok()) return CheckError(status);
  std::string text;
  lowkey::JsonWriter writer(text);
  lowkey::WriteProto(request, writer);
  const json written = json::parse(text, nullptr, false);
  LK_CHECK(written.is_object() && lowkey::ReadProto(written, "", again).ok());
  LK_CHECK(again.SerializeAsString() == request.SerializeAsString());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Served& served = *new Served;
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto& [engine, service, options, context, call] = served;
  switch (data[0] % 5) {
    case 0:
      CheckGenerations(ReadCompletions(service, options, "f", context, call, body));
      break;
    case 1:
      CheckGenerations(ReadChat(service, options, "f", context, call, body));
      break;
    case 2:
      if (const auto json = TokenizeJson(service, options, context, call, body); !json.ok()) {
        CheckError(json.status());
      }
      break;
    case 3:
      CheckMembers(body);
      break;
    default:
      CheckProto(body);
  }
  return 0;
}

// One input is a call's body: messages with their prefixes, read in pieces, then checked and parsed
// as requests. What passes the check is parsed or refused by name without a line in protobuf's log,
// and has no more elements than were counted.

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/unknown_field_set.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "lowkey/v1/generation.pb.h"
#include "server/rpc/frames.h"
#include "server/rpc/wire_check.h"

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns the elements of a message: those of its fields, of their messages, and unknown ones.
int64_t ElementsOf(const Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  int64_t n_elements = reflection.GetUnknownFields(message).field_count();
  for (const FieldDescriptor* field : fields) {
    const int n = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    n_elements += n;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) n_elements += ElementsOf(reflection.GetMessage(message, field));
    if (!field->is_repeated() || field->is_map()) continue;
    for (int i = 0; i < n; ++i) {
      n_elements += ElementsOf(reflection.GetRepeatedMessage(message, field, i));
    }
  }
  return n_elements;
}

// Returns the messages of a body that comes in pieces, up to a broken one.
std::vector<std::string> MessagesOf(std::string_view body, size_t piece_bytes) {
  constexpr size_t kMaxBytes = size_t{4} << 20;
  lowkey::RpcFrameReader reader(kMaxBytes);
  std::vector<std::string> messages;
  for (size_t at = 0; at < body.size(); at += piece_bytes) {
    std::string_view piece = body.substr(at, piece_bytes);
    while (!piece.empty()) {
      absl::StatusOr<std::optional<std::string>> message = reader.Take(piece);
      if (!message.ok()) return messages;
      if (!message->has_value()) continue;
      LK_CHECK((*message)->size() <= kMaxBytes);
      LK_CHECK((*message)->capacity() <= 2 * body.size() + 64);
      messages.push_back(**message);
    }
  }
  return messages;
}

void CheckMessage(const std::string& bytes) {
  lowkey::v1::GenerateRequest request;
  const absl::Status checked = lowkey::CheckWire(bytes, *request.GetDescriptor());
  if (!checked.ok()) {
    LK_CHECK(checked.code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  const absl::Status parsed = lowkey::ParseMessage(bytes, request);
  if (!parsed.ok()) {
    // CheckWire leaves the contents of packed fields to the parser.
    const std::string text(parsed.message());
    LK_CHECK(parsed.code() == absl::StatusCode::kInvalidArgument);
    LK_CHECK(text.ends_with(": not UTF-8, expected UTF-8 text") ||
             text == "message: malformed, expected a protobuf of its type");
    return;
  }
  LK_CHECK(ElementsOf(request) <= lowkey::kMaxWireElements);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static const bool once = [] {
    google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int,
                                       const std::string&) { LK_CHECK(!"protobuf logged"); });
    return true;
  }();
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const std::vector<std::string> messages = MessagesOf(body, size + 1);
  LK_CHECK(MessagesOf(body, 7) == messages);
  for (const std::string& message : messages) CheckMessage(message);
  return 0;
}

#ifndef LOWKEY_SERVER_API_OPENAI_RESPONSES_OUTPUT_ITEMS_H_
#define LOWKEY_SERVER_API_OPENAI_RESPONSES_OUTPUT_ITEMS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/api/http/json_writer.h"
#include "server/api/openai/tools/tool_parser.h"

namespace lowkey {

// ResponseForm says whether an answer is streamed as typed events.
enum class ResponseForm { kWhole, kStream };

// Writes the typed events of a stream, numbered from 0; of a whole answer nothing.
class ResponseEvents {
 public:
  explicit ResponseEvents(ResponseForm form) : is_stream_(form == ResponseForm::kStream) {}

  // Adds an event; `write` adds its members to the JsonWriter that it gets.
  template <typename WriteMembers>
  void Add(std::string_view type, const WriteMembers& write) {
    if (!is_stream_) return;
    bytes_.append("event: ").append(type).append("\ndata: ");
    JsonWriter writer(bytes_);
    writer.BeginObject().Key("type").Text(type).Key("sequence_number").Int(n_events_++);
    write(writer);
    writer.EndObject();
    bytes_ += "\n\n";
  }

  // Returns the bytes of the events since the last call.
  std::string Take() { return std::exchange(bytes_, {}); }

 private:
  const bool is_stream_;
  std::string bytes_;
  int64_t n_events_ = 0;
};

// Builds the output of a response from the parts of the model's text: neighboring text becomes one
// message, neighboring reasoning one item, and every call an item of its own.
class OutputItems {
 public:
  // `id` names the items after their kind ("msg_ID_0"). The events must outlive this.
  OutputItems(std::string id, ResponseEvents& events) : id_(std::move(id)), events_(events) {}

  void Add(const ToolEvent& part);
  // Ends the last item with this status; an output without items gets an empty message.
  void End(std::string_view status);

  // The items that have ended, without the array's brackets.
  const std::string& json() const { return json_; }

 private:
  struct Item {
    ToolEvent::Kind kind;  // kCallBegin stands for a call with its arguments
    std::string id;
    std::string text = {};  // of a call: its arguments
    std::string call_id = {}, name = {};
  };

  void Open(const ToolEvent& part);
  void Close(std::string_view status);
  void AppendText(const std::string& text);
  void WriteItem(std::string_view status, JsonWriter& writer) const;
  void WritePart(JsonWriter& writer) const;
  // Writes the members that say which item and part an event is about.
  void WritePlace(JsonWriter& writer) const;

  const std::string id_;
  ResponseEvents& events_;
  std::optional<Item> item_;  // the one that grows
  size_t n_ended_ = 0;
  std::string json_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_RESPONSES_OUTPUT_ITEMS_H_

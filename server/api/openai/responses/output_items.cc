#include "server/api/openai/responses/output_items.h"

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

using Kind = ToolEvent::Kind;

// Arguments belong to the item that their call began.
Kind ItemKind(Kind kind) { return kind == Kind::kArguments ? Kind::kCallBegin : kind; }

const char* IdPrefix(Kind kind) {
  if (kind == Kind::kContent) return "msg_";
  return kind == Kind::kReasoning ? "rs_" : "fc_";
}

// The middle of the names of events about an item's text.
std::string TextEvent(Kind kind, std::string_view end) {
  const char* const name = kind == Kind::kContent     ? "response.output_text"
                           : kind == Kind::kReasoning ? "response.reasoning_text"
                                                      : "response.function_call_arguments";
  return absl::StrCat(name, ".", std::string(end));
}

}  // namespace

void OutputItems::WritePlace(JsonWriter& writer) const {
  writer.Key("item_id").Text(item_->id).Key("output_index").Unsigned(n_ended_);
  if (item_->kind != Kind::kCallBegin) writer.Key("content_index").Int(0);
}

void OutputItems::WritePart(JsonWriter& writer) const {
  const bool is_message = item_->kind == Kind::kContent;
  writer.BeginObject().Key("type").Text(is_message ? "output_text" : "reasoning_text");
  writer.Key("text").Text(item_->text);
  if (is_message) {
    writer.Key("annotations").BeginArray().EndArray().Key("logprobs").BeginArray().EndArray();
  }
  writer.EndObject();
}

void OutputItems::WriteItem(std::string_view status, JsonWriter& writer) const {
  const bool is_message = item_->kind == Kind::kContent, is_call = item_->kind == Kind::kCallBegin;
  writer.BeginObject().Key("id").Text(item_->id).Key("type");
  writer.Text(is_message ? "message" : is_call ? "function_call" : "reasoning");
  writer.Key("status").Text(status);
  if (is_call) {
    writer.Key("call_id").Text(item_->call_id).Key("name").Text(item_->name);
    writer.Key("arguments").Text(item_->text).EndObject();
    return;
  }
  if (is_message) {
    writer.Key("role").Text("assistant");
  } else {
    writer.Key("summary").BeginArray().EndArray();
  }
  writer.Key("content").BeginArray();
  if (status != "in_progress") WritePart(writer);
  writer.EndArray().EndObject();
}

void OutputItems::Open(const ToolEvent& part) {
  if (item_.has_value()) Close("completed");
  const Kind kind = ItemKind(part.kind);
  item_ = Item{.kind = kind,
               .id = absl::StrCat(IdPrefix(kind), id_, "_", n_ended_),
               .call_id = part.id,
               .name = part.name};
  events_.Add("response.output_item.added", [this](JsonWriter& writer) {
    writer.Key("output_index").Unsigned(n_ended_).Key("item");
    WriteItem("in_progress", writer);
  });
  if (kind == Kind::kCallBegin) return;
  events_.Add("response.content_part.added", [this](JsonWriter& writer) {
    WritePlace(writer);
    writer.Key("part");
    WritePart(writer);
  });
}

void OutputItems::AppendText(const std::string& text) {
  item_->text += text;
  events_.Add(TextEvent(item_->kind, "delta"), [this, &text](JsonWriter& writer) {
    WritePlace(writer);
    writer.Key("delta").Text(text);
    if (item_->kind == Kind::kContent) writer.Key("logprobs").BeginArray().EndArray();
  });
}

void OutputItems::Close(std::string_view status) {
  events_.Add(TextEvent(item_->kind, "done"), [this](JsonWriter& writer) {
    WritePlace(writer);
    if (item_->kind == Kind::kCallBegin) {
      writer.Key("name").Text(item_->name).Key("arguments").Text(item_->text);
      return;
    }
    writer.Key("text").Text(item_->text);
    if (item_->kind == Kind::kContent) writer.Key("logprobs").BeginArray().EndArray();
  });
  if (item_->kind != Kind::kCallBegin) {
    events_.Add("response.content_part.done", [this](JsonWriter& writer) {
      WritePlace(writer);
      writer.Key("part");
      WritePart(writer);
    });
  }
  events_.Add("response.output_item.done", [this, status](JsonWriter& writer) {
    writer.Key("output_index").Unsigned(n_ended_).Key("item");
    WriteItem(status, writer);
  });
  if (n_ended_ > 0) json_ += ',';
  JsonWriter writer(json_);
  WriteItem(status, writer);
  ++n_ended_;
  item_.reset();
}

void OutputItems::Add(const ToolEvent& part) {
  const bool begins_call = part.kind == Kind::kCallBegin;
  if (!begins_call && part.text.empty()) return;
  if (begins_call || !item_.has_value() || item_->kind != ItemKind(part.kind)) Open(part);
  if (!part.text.empty()) AppendText(part.text);
}

void OutputItems::End(std::string_view status) {
  if (!item_.has_value() && n_ended_ == 0) Open({});
  if (item_.has_value()) Close(status);
}

}  // namespace lowkey

#include "server/api/openai/responses/output_items.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace lowkey {
namespace {

using nlohmann::json;
using Kind = ToolEvent::Kind;

// The events' types and JSON.
std::vector<json> Parsed(const std::string& bytes) {
  std::vector<json> events;
  for (size_t at = 0; (at = bytes.find("data: ", at)) != std::string::npos;) {
    const size_t end = bytes.find("\n\n", at);
    events.push_back(json::parse(bytes.substr(at + 6, end - at - 6)));
    at = end;
  }
  return events;
}

const std::vector<ToolEvent> kParts = {
    {.kind = Kind::kReasoning, .text = "hm"},
    {.kind = Kind::kContent, .text = "Let "},
    {.kind = Kind::kContent, .text = "me see\n"},
    {.kind = Kind::kCallBegin, .index = 0, .id = "call_1", .name = "f"},
    {.kind = Kind::kArguments, .text = "{\"a\":", .index = 0},
    {.kind = Kind::kArguments, .text = "1}", .index = 0},
    {.kind = Kind::kCallBegin, .index = 1, .id = "call_2", .name = "g"},
    {.kind = Kind::kContent, .text = ""},
    {.kind = Kind::kArguments, .text = "{}", .index = 1},
};

TEST(OutputItemsTest, NeighborsOfOneKindAreOneItem) {
  ResponseEvents events(ResponseForm::kWhole);
  OutputItems items("7", events);
  for (const ToolEvent& part : kParts) items.Add(part);
  items.End("incomplete");
  EXPECT_EQ(events.Take(), "");
  const json output = json::parse("[" + items.json() + "]");
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(output[0], json({{"id", "rs_7_0"},
                             {"type", "reasoning"},
                             {"status", "completed"},
                             {"summary", json::array()},
                             {"content", {{{"type", "reasoning_text"}, {"text", "hm"}}}}}));
  EXPECT_EQ(output[1]["id"], "msg_7_1");
  EXPECT_EQ(output[1]["role"], "assistant");
  EXPECT_EQ(output[1]["content"][0]["text"], "Let me see\n");
  EXPECT_EQ(output[1]["content"][0]["type"], "output_text");
  EXPECT_EQ(output[2], json({{"id", "fc_7_2"},
                             {"type", "function_call"},
                             {"status", "completed"},
                             {"call_id", "call_1"},
                             {"name", "f"},
                             {"arguments", "{\"a\":1}"}}));
  EXPECT_EQ(output[3]["arguments"], "{}");
  EXPECT_EQ(output[3]["status"], "incomplete");
}

TEST(OutputItemsTest, EventsJoinToTheItems) {
  ResponseEvents events(ResponseForm::kStream);
  OutputItems items("7", events);
  std::string bytes;
  for (const ToolEvent& part : kParts) {
    items.Add(part);
    bytes += events.Take();
  }
  items.End("completed");
  bytes += events.Take();
  const json output = json::parse("[" + items.json() + "]");
  std::map<std::string, std::string> texts;  // by item
  std::vector<json> done;
  int64_t n_events = 0, n_parts = 0;
  for (const json& event : Parsed(bytes)) {
    EXPECT_EQ(event["sequence_number"], n_events++);
    const std::string type = event["type"];
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], done.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
    } else if (type == "response.content_part.added") {
      EXPECT_EQ(event["part"]["text"], "");
      ++n_parts;
    } else if (type == "response.output_item.done") {
      done.push_back(event["item"]);
    } else if (type.ends_with(".delta")) {
      texts[event["item_id"]] += event["delta"].get<std::string>();
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], texts[event["item_id"]]);
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(event["part"]["text"], texts[event["item_id"]]);
      --n_parts;
    } else {
      EXPECT_TRUE(type == "response.output_text.done" || type == "response.reasoning_text.done")
          << type;
      EXPECT_EQ(event["text"], texts[event["item_id"]]);
    }
  }
  EXPECT_EQ(json(done), output);
  EXPECT_EQ(n_parts, 0);
}

TEST(OutputItemsTest, OutputWithoutTextIsAnEmptyMessage) {
  ResponseEvents events(ResponseForm::kStream);
  OutputItems items("7", events);
  items.End("completed");
  const json output = json::parse("[" + items.json() + "]");
  ASSERT_EQ(output.size(), 1u);
  EXPECT_EQ(output[0]["type"], "message");
  EXPECT_EQ(output[0]["content"][0]["text"], "");
}

}  // namespace
}  // namespace lowkey

#ifndef LOWKEY_TESTS_SERVER_API_OPENAI_TOOLS_JOINED_EVENTS_H_
#define LOWKEY_TESTS_SERVER_API_OPENAI_TOOLS_JOINED_EVENTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "server/api/openai/tools/tool_parser.h"

namespace lowkey {

// Returns the events of a text that comes in pieces which end at `cuts`, in ascending order.
// Neighbors of one kind are joined. Ids, which are drawn, are left out unless `keeps_ids`.
inline std::vector<ToolEvent> JoinedEvents(ToolFormat format, std::string_view text,
                                           const std::vector<size_t>& cuts = {},
                                           const ToolParserOptions& options = {},
                                           bool keeps_ids = false) {
  const auto parser = MakeToolParser(format, options);
  std::vector<ToolEvent> joined;
  const auto take = [&](std::vector<ToolEvent> events) {
    for (ToolEvent& event : events) {
      if (!keeps_ids) event.id.clear();
      const bool joins = !joined.empty() && joined.back().kind == event.kind &&
                         joined.back().index == event.index &&
                         event.kind != ToolEvent::Kind::kCallBegin;
      if (joins) {
        joined.back().text += event.text;
      } else {
        joined.push_back(event);
      }
    }
  };
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : text.size();
    std::vector<ToolEvent> events;
    parser->Add(text.substr(begin, end - begin), events);
    take(std::move(events));
    begin = end;
  }
  std::vector<ToolEvent> events;
  parser->End(events);
  take(std::move(events));
  return joined;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_API_OPENAI_TOOLS_JOINED_EVENTS_H_

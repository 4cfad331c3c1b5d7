#ifndef LOWKEY_SERVER_API_OPENAI_TOOLS_CALLS_FORM_H_
#define LOWKEY_SERVER_API_OPENAI_TOOLS_CALLS_FORM_H_

#include <string_view>
#include <vector>

#include "server/api/openai/requests/tools.h"
#include "server/api/openai/tools/tool_format.h"
#include "server/request/response_format.h"

namespace lowkey {

// Returns the form of an answer that calls the tools, as a model writes it whose template has this
// text: what the parser of the format takes for calls, and nothing else. `format` must not be
// kNone.
ToolCallsForm CallsFormOf(ToolFormat format, std::string_view template_text,
                          const std::vector<CallableTool>& tools, bool is_parallel);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_TOOLS_CALLS_FORM_H_

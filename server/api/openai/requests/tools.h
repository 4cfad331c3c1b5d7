#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_TOOLS_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_TOOLS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/api/openai/requests/fields.h"

namespace lowkey {

// A tool that the answer may call.
struct CallableTool {
  std::string field;       // "tools[2].function.parameters"
  std::string name;        // kMaxToolNameBytes of letters, digits, "_", "-" and "." at most
  std::string parameters;  // a JSON Schema
};

// CallChoice says whether the answer calls tools.
enum class CallChoice {
  kFree,      // the model decides
  kRequired,  // it calls one tool or more
  kNamed      // it calls one tool, which the request names
};

// RequestedTools holds what a request says of tools.
struct RequestedTools {
  std::string json = {};  // the tools that the template sees, each as the client wrote it
  CallChoice choice = CallChoice::kFree;
  std::vector<CallableTool> callable = {};  // of kRequired and kNamed
  bool is_parallel = true;                  // an answer may have several calls
};

// Reads `tools`, `tool_choice` and `parallel_tool_calls`; `body` is the text that `fields` was
// parsed from. Tools that a choice of type "allowed_tools" does not name are left out.
// INVALID_ARGUMENT naming the field, or UNIMPLEMENTED for tools and choices of other types. What
// the schemas say is checked where they are compiled.
absl::StatusOr<RequestedTools> ReadTools(Fields& fields, const std::string& body);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_TOOLS_H_

#ifndef LOWKEY_SERVER_TEXT_TOOL_CALL_GRAMMAR_H_
#define LOWKEY_SERVER_TEXT_TOOL_CALL_GRAMMAR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/grammar/automaton/grammar.h"
#include "server/request/response_format.h"

namespace lowkey {

// Compiles the texts of a form: reasoning if the form has it, then 1 to most_calls calls of the
// form's tools, in any order. INVALID_ARGUMENT beginning with the field of the tool whose schema is
// at fault, or with "tools"; the budget's errors.
absl::StatusOr<std::shared_ptr<const grammar::Grammar>> CompileToolCalls(const ToolCallsForm& form,
                                                                         grammar::Budget& budget);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TEXT_TOOL_CALL_GRAMMAR_H_

#ifndef LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_H_
#define LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/grammar/automaton/grammar.h"
#include "server/grammar/schema/json_text.h"

namespace lowkey::grammar {

// Compiles a JSON Schema (docs/structured_output.md has the keywords). Every text of the grammar is
// JSON that the schema accepts; members come in the schema's order. INVALID_ARGUMENT beginning with
// "json_schema" and the place: no JSON, a keyword that is not supported, a value that a keyword
// cannot have, a schema that no value satisfies; the budget's errors.
absl::StatusOr<std::shared_ptr<const Grammar>> CompileJsonSchema(std::string_view text,
                                                                 Budget& budget);

// Adds the rules of the objects that a JSON Schema accepts to the grammar of `builder`, and returns
// the rule of the objects themselves. `rules` belongs to the same builder and may serve several
// schemas. The errors are those of CompileJsonSchema.
absl::StatusOr<int32_t> AddObjectSchema(std::string_view text, GrammarBuilder& builder,
                                        JsonRules& rules, Budget& budget);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_H_

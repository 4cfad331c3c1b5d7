#ifndef LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_CHECK_H_
#define LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_CHECK_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/grammar/automaton/budget.h"

namespace lowkey::grammar {

// JSON whose members keep their order.
using Json = nlohmann::ordered_json;

// Parses the text of a schema and checks its form: every keyword that is not an annotation is one
// that we know, and its value has the right type and range. Code behind this check relies on it.
// INVALID_ARGUMENT naming the keyword and its place ("json_schema: #/properties/a/multipleOf: this
// keyword is not supported").
absl::StatusOr<Json> ParseSchema(std::string_view text, Budget& budget);

// The same check for a part of a schema, which stands at `place`.
absl::Status CheckSchema(const Json& schema, const std::string& place, Budget& budget);

// Returns whether a keyword says nothing about which values are valid.
bool IsAnnotation(std::string_view keyword);

// Returns the part of the document that "#", "#/..." points to. INVALID_ARGUMENT beginning with
// `place`: another kind of reference, or nothing is there.
absl::StatusOr<const Json*> Resolve(const Json& root, const std::string& reference,
                                    const std::string& place);

// Returns the units of work that a copy of the value takes.
int64_t WeightOf(const Json& value);

absl::Status SchemaError(std::string_view place, std::string_view message);

// Returns the bits of the types that a schema names; all if it names none.
enum TypeBits : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8,
  kString = 16,
  kArray = 32,
  kObject = 64,
  kAllTypes = 127
};
unsigned TypesOf(const Json& schema);

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_CHECK_H_

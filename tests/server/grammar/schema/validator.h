#ifndef LOWKEY_TESTS_SERVER_GRAMMAR_SCHEMA_VALIDATOR_H_
#define LOWKEY_TESTS_SERVER_GRAMMAR_SCHEMA_VALIDATOR_H_

#include <nlohmann/json.hpp>
#include <string>

namespace lowkey::grammar {

// Returns why a value is not valid under a JSON Schema; empty if it is. Shares no code with the
// compiler. Knows the keywords of schemas.jsonl; `format` and titles say nothing.
std::string WhyInvalid(const nlohmann::json& root, const nlohmann::json& schema,
                       const nlohmann::json& value);

}  // namespace lowkey::grammar

#endif  // LOWKEY_TESTS_SERVER_GRAMMAR_SCHEMA_VALIDATOR_H_

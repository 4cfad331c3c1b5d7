// The fuzz target over mutations of good descriptions, always the same ones.

#include <gtest/gtest.h>

#include "tests/fuzz/json_mutations.h"

namespace lowkey {
namespace {

// Each begins with its form and what draws tokens.
const std::vector<std::string>& Seeds() {
  static const auto* const seeds = new std::vector<std::string>{
      std::string("\0a", 2) + R"(^(a|b[^c-e]){2,5}\d+\u00e9?$)",
      "\1a"
      "root ::= (item \",\")* \"x\"{1,3}\nitem ::= [a-z]+ | \"(\" root \")\"",
      R"(7a{"type":"object","properties":{"a":{"type":"integer","minimum":-5,"maximum":99},)"
      R"("b":{"type":"array","items":{"$ref":"#/$defs/t"},"minItems":1,"maxItems":3},)"
      R"("c":{"type":"string","pattern":"^[a-z]+$","maxLength":5},"d":{"enum":[1,"x",null]}},)"
      R"("required":["a"],"$defs":{"t":{"anyOf":[{"type":"string","minLength":2},)"
      R"({"type":"number","exclusiveMinimum":0.5},{"$ref":"#"}]}},"allOf":[{"properties":{}}]})"};
  return *seeds;
}

TEST(SchemaFuzzTest, TakesItsSeeds) {
  for (const std::string& seed : Seeds()) RunTarget(seed);
}

TEST(SchemaFuzzTest, SurvivesTruncation) {
  for (const std::string& seed : Seeds()) {
    for (size_t n = 0; n < seed.size(); ++n) RunTarget(seed.substr(0, n));
  }
}

TEST(SchemaFuzzTest, SurvivesMutation) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string& seed = Seeds()[i % Seeds().size()];
    RunTarget(seed.substr(0, 2) + MutateJson(seed.substr(2), seed.size() - 2, random));
  }
}

}  // namespace
}  // namespace lowkey

// The fuzz target over mutations of good templates, always the same ones.

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/testing/source_path.h"
#include "tokenizer/chat/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lowkey {
namespace {

// Pieces that mean something to the parser.
constexpr const char* kPieces[] = {"{{ ",
                                   " }}",
                                   "{%- ",
                                   " -%}",
                                   "{#",
                                   "#}",
                                   "{% for x in messages %}",
                                   "{% endfor %}",
                                   "{% if ",
                                   "{% else %}",
                                   "{% endif %}",
                                   "{% set ns.x = ",
                                   "namespace(",
                                   "{% macro m(a=1) %}",
                                   "{% endmacro %}",
                                   "m(",
                                   ")",
                                   "[",
                                   "]",
                                   "::-1",
                                   "(",
                                   "{'a': ",
                                   "}",
                                   ",",
                                   ".",
                                   "|",
                                   " ~ ",
                                   " + ",
                                   " * 99999",
                                   " not ",
                                   " is ",
                                   " in ",
                                   " and ",
                                   "messages",
                                   "message",
                                   "tools",
                                   "loop",
                                   "words",
                                   ".content",
                                   "['role']",
                                   ".items()",
                                   ".split('e')",
                                   ".strip()",
                                   "|tojson(indent=2)",
                                   "|trim",
                                   "|join(', ')",
                                   "|map(attribute='content')",
                                   "|selectattr('role', 'equalto', 'user')",
                                   "|list",
                                   "|replace('e', '')",
                                   "|sort",
                                   "|first",
                                   "|last",
                                   "raise_exception('x')",
                                   "range(99)",
                                   "'",
                                   "\"",
                                   "\\u00e9",
                                   "\xff",
                                   "\n",
                                   "0",
                                   "-1",
                                   "1.5e9",
                                   "9223372036854775807"};

// Whole templates of the goldens.
std::vector<std::string> Seeds() {
  std::ifstream file(SourcePath("tests/tokenizer/chat/data/goldens.json"));
  const auto goldens = nlohmann::json::parse(file);
  std::vector<std::string> seeds;
  for (const auto& [name, source] : goldens["styles"].items()) seeds.push_back(source);
  for (const auto& golden : goldens["cases"]) {
    if (golden.contains("template")) seeds.push_back(golden["template"]);
  }
  return seeds;
}

void RunTarget(const std::string& source) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(source.data()), source.size());
}

void Mutate(std::string& source, const std::vector<std::string>& seeds, std::mt19937& random) {
  const size_t at = source.empty() ? 0 : random() % source.size();
  const size_t n = random() % 24;
  const std::string& other = seeds[random() % seeds.size()];
  switch (random() % 5) {
    case 0:
      source.erase(at, n);
      break;
    case 1:
      source.insert(at, source.substr(at, n));
      break;
    case 2:
      source.insert(at, other.substr(other.empty() ? 0 : random() % other.size(), 4 * n));
      break;
    case 3:
      if (!source.empty()) source[at] = static_cast<char>(source[at] ^ (1 << random() % 8));
      break;
    default:
      source.insert(at, kPieces[random() % std::size(kPieces)]);
  }
}

TEST(ChatTemplateFuzzTest, RendersItsSeedsWithinBounds) {
  for (const std::string& seed : Seeds()) RunTarget(seed);
}

TEST(ChatTemplateFuzzTest, SurvivesTruncation) {
  for (const std::string& seed : Seeds()) {
    for (size_t n = 0; n < seed.size(); n += 1 + seed.size() / 100) RunTarget(seed.substr(0, n));
  }
}

TEST(ChatTemplateFuzzTest, SurvivesMutation) {
  const std::vector<std::string> seeds = Seeds();
  std::mt19937 random(1);
  int n_accepted = 0;
  for (int round = 0; round < 30000; ++round) {
    std::string source = seeds[random() % seeds.size()];
    for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) Mutate(source, seeds, random);
    n_accepted += ChatTemplate::Parse(source).ok() ? 1 : 0;
    RunTarget(source);
  }
  // Otherwise the interpreter would hardly be tried.
  EXPECT_GT(n_accepted, 4000);
}

}  // namespace
}  // namespace lowkey

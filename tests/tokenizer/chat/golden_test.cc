// Every template of data/goldens.json, against what Hugging Face's environment made of it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tokenizer/chat/jinja/interpreter.h"
#include "tokenizer/chat/jinja/parser.h"
#include "tokenizer/chat/values/format.h"

namespace lowkey::jinja {
namespace {

using Json = nlohmann::ordered_json;

const Json& Goldens() {
  static const Json* const goldens = [] {
    std::ifstream file(std::string(LOWKEY_SOURCE_DIR) + "/tests/tokenizer/chat/data/goldens.json");
    return new Json(Json::parse(file));
  }();
  return *goldens;
}

absl::StatusOr<std::string> Render(const std::string& source, const Json& data) {
  const absl::StatusOr<Body> body = ParseTemplate(source);
  if (!body.ok()) return body.status();
  Arena arena({});
  const absl::StatusOr<Value> values = FromJson(data.dump(), arena);
  if (!values.ok()) return values.status();
  absl::flat_hash_map<std::string, Value> variables;
  for (const Dict::Entry& entry : values->AsDict()->entries()) {
    variables[entry.key->bytes()] = entry.value;
  }
  const Clock clock{absl::FromCivil(absl::CivilSecond(2026, 3, 4, 5, 6, 7), absl::UTCTimeZone())};
  Interpreter interpreter(variables, clock, arena);
  const absl::StatusOr<Text> text = interpreter.Render(*body);
  if (!text.ok()) return text.status();
  size_t end = 0;
  for (const ByteRange& range : text->user_ranges()) {
    EXPECT_TRUE(range.begin < range.end && range.end <= text->size() &&
                (end == 0 || range.begin > end));
    end = range.end;
  }
  return text->bytes();
}

TEST(GoldenTest, RendersAsHuggingFaceDoes) {
  int n_rendered = 0;
  for (const Json& golden : Goldens()["cases"]) {
    const bool is_chat = golden.contains("style");
    const std::string source =
        (is_chat ? Goldens()["styles"][golden["style"].get<std::string>()] : golden["template"])
            .get<std::string>();
    const Json& data = is_chat
                           ? Goldens()["conversations"][golden["conversation"].get<std::string>()]
                           : Goldens()["data"];
    const absl::StatusOr<std::string> text = Render(source, data);
    const std::string name = golden["name"].get<std::string>();
    if (golden.contains("error")) {
      EXPECT_FALSE(text.ok()) << name << "\nrendered: " << *text
                              << "\nexpected: " << golden["error"];
    } else {
      if (text.ok()) {
        EXPECT_EQ(*text, golden["text"].get<std::string>()) << name;
      } else {
        ADD_FAILURE() << name << "\n" << text.status();
      }
    }
    ++n_rendered;
  }
  EXPECT_GT(n_rendered, 500);
}

}  // namespace
}  // namespace lowkey::jinja

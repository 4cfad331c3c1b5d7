// Every template of data/goldens.json, against what Hugging Face's environment made of it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing/source_path.h"
#include "tests/tokenizer/chat/render.h"

namespace lowkey::jinja {
namespace {

using Json = nlohmann::ordered_json;

const Json& Goldens() {
  static const Json* const goldens = [] {
    std::ifstream file(SourcePath("tests/tokenizer/chat/data/goldens.json"));
    return new Json(Json::parse(file));
  }();
  return *goldens;
}

void ExpectRangesInOrder(const Text& text) {
  size_t end = 0;
  for (const ByteRange& range : text.user_ranges()) {
    EXPECT_LT(range.begin, range.end);
    EXPECT_TRUE(end == 0 || range.begin > end) << "touching ranges are one";
    end = range.end;
  }
  EXPECT_LE(end, text.size());
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
    const absl::StatusOr<Text> text = Render(source, data.dump());
    const std::string name = golden["name"].get<std::string>();
    if (golden.contains("error")) {
      EXPECT_FALSE(text.ok()) << name << "\nrendered: " << text->bytes()
                              << "\nexpected: " << golden["error"];
    } else {
      if (text.ok()) {
        EXPECT_EQ(text->bytes(), golden["text"].get<std::string>()) << name;
        ExpectRangesInOrder(*text);
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

// Random texts under the masks of a set of schemas are valid; prints what compiling and masks cost.
// LOWKEY_SCHEMA_SET_MODEL names a model whose vocabulary is used instead of the demo model's, and
// LOWKEY_SCHEMA_SET_TEXTS a file that gets the texts, for other validators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "server/model_files/load_tokenizer.h"
#include "tests/server/grammar/schema/validator.h"
#include "tests/server/grammar/testing.h"
#include "tests/server/testing.h"
#include "tests/testing/source_path.h"

namespace lowkey::grammar {
namespace {

using Json = nlohmann::json;

std::vector<Json> SchemaSet() {
  std::ifstream in(SourcePath("tests/server/grammar/schema/schemas.jsonl"));
  std::vector<Json> set;
  for (std::string line; std::getline(in, line);) set.push_back(Json::parse(line));
  return set;
}

// The schema's own text: parsing would sort its members.
std::vector<std::string> SchemaTexts() {
  std::ifstream in(SourcePath("tests/server/grammar/schema/schemas.jsonl"));
  std::vector<std::string> texts;
  for (std::string line; std::getline(in, line);) {
    texts.push_back(nlohmann::ordered_json::parse(line)["schema"].dump());
  }
  return texts;
}

std::shared_ptr<const Vocabulary> ChosenVocabulary() {
  const char* model = std::getenv("LOWKEY_SCHEMA_SET_MODEL");
  if (model == nullptr) {
    const Tokenizer& tokenizer = TestTokenizer();
    return std::make_shared<const Vocabulary>(tokenizer, tokenizer.vocab_size(),
                                              tokenizer.eos_ids());
  }
  auto files = OpenModelFiles(model);
  EXPECT_TRUE(files.ok()) << files.status();
  auto tokenizer = LoadTokenizer(*files);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return std::make_shared<const Vocabulary>(**tokenizer, (*tokenizer)->vocab_size(),
                                            (*tokenizer)->eos_ids());
}

// The thread's own time, whatever else the machine does.
double CpuMicroseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Times {
  std::vector<double> us = {};
  void Note(double start) { us.push_back(CpuMicroseconds() - start); }
  double Quantile(double q) {
    if (us.empty()) return 0;
    std::sort(us.begin(), us.end());
    return us[static_cast<size_t>(q * static_cast<double>(us.size() - 1))];
  }
  void Print(const char* name) {
    std::printf("%-28s n %8zu  p50 %9.1f us  p99 %9.1f us  most %9.1f us\n", name, us.size(),
                Quantile(0.5), Quantile(0.99), Quantile(1));
  }
};

class SchemaSetTest : public testing::Test {
 protected:
  // Draws a text of at most `max_tokens`; empty if it is not complete by then.
  std::string Draw(const ConstraintParts& parts, Times& times) {
    GrammarConstraint constraint(parts);
    std::string text;
    for (int i = 0; i < 300; ++i) {
      const double start = CpuMicroseconds();
      const auto mask = constraint.Mask();
      times.Note(start);
      EXPECT_TRUE(mask.ok()) << mask.status() << " after " << text;
      if (!mask.ok()) return "";
      const int32_t token = Choose(*mask, *parts.vocabulary);
      EXPECT_TRUE(constraint.Advance(token).ok());
      if (parts.vocabulary->IsEnd(token)) return text;
      text.append(parts.vocabulary->text(token));
    }
    ++n_unfinished_;
    return "";
  }

  // A token of the mask; now and then the one that comes closest to the end of a text.
  int32_t Choose(absl::Span<const uint64_t> mask, const Vocabulary& vocabulary) {
    std::vector<int32_t> allowed, closing;
    for (int32_t t = 0; t < vocabulary.vocab_size(); ++t) {
      if (!IsIn(mask, t)) continue;
      allowed.push_back(t);
      const std::string_view text = vocabulary.text(t);
      if (vocabulary.IsEnd(t) || text.starts_with('"') || text.starts_with('}') ||
          text.starts_with(']')) {
        closing.push_back(t);
      }
    }
    const auto& from = !closing.empty() && random_() % 3 == 0 ? closing : allowed;
    return from[random_() % from.size()];
  }

  std::mt19937 random_{11};
  int n_unfinished_ = 0;
};

TEST_F(SchemaSetTest, RandomTextsAreValid) {
  const std::vector<Json> set = SchemaSet();
  const std::vector<std::string> texts = SchemaTexts();
  const auto vocabulary = ChosenVocabulary();
  std::printf("vocabulary of %d tokens, %d nodes\n", vocabulary->vocab_size(),
              vocabulary->n_nodes());
  std::ofstream out;
  if (const char* file = std::getenv("LOWKEY_SCHEMA_SET_TEXTS")) out.open(file);
  const auto cache = std::make_shared<MaskCache>();
  Times compiling, first, later;
  int n_valid = 0, n_compiled = 0;
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i].contains("refused")) continue;
    Budget budget;
    const double before = CpuMicroseconds();
    const auto grammar = CompileJsonSchema(texts[i], budget);
    compiling.Note(before);
    ASSERT_TRUE(grammar.ok()) << grammar.status() << " " << texts[i];
    ++n_compiled;
    const ConstraintParts parts{*grammar, vocabulary, cache};
    for (int draw = 0; draw < 4; ++draw) {
      const std::string text = Draw(parts, draw == 0 ? first : later);
      if (text.empty()) continue;
      const Json value = Json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << text << " under " << texts[i];
      EXPECT_EQ(WhyInvalid(set[i]["schema"], set[i]["schema"], value), "")
          << text << " under " << texts[i];
      ++n_valid;
      if (out.is_open()) out << Json{{"schema", i}, {"text", text}}.dump() << "\n";
    }
  }
  EXPECT_GE(n_compiled, 200);
  EXPECT_GE(n_valid, 2 * n_compiled);
  std::printf("%d schemas, %d texts complete and valid, %d not complete after 300 tokens\n",
              n_compiled, n_valid, n_unfinished_);
  compiling.Print("compiling a schema");
  first.Print("masks of a first text");
  later.Print("masks of later texts");
  std::printf("masks kept: %.1f MB\n", static_cast<double>(cache->size_bytes()) / 1e6);
}

TEST_F(SchemaSetTest, UnsupportedKeywordsAreNamed) {
  const std::vector<Json> set = SchemaSet();
  const std::vector<std::string> texts = SchemaTexts();
  int n_refused = 0;
  for (size_t i = 0; i < set.size(); ++i) {
    if (!set[i].contains("refused")) continue;
    ++n_refused;
    Budget budget;
    const absl::Status status = CompileJsonSchema(texts[i], budget).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("#/properties/a/" + set[i]["refused"].get<std::string>()));
  }
  EXPECT_GE(n_refused, 10);
}

// Masks of the states that JSON has most, each computed once and then found.
TEST_F(SchemaSetTest, TimesOfSingleStates) {
  const auto vocabulary = ChosenVocabulary();
  const auto grammar = Schema(R"({"type":"object","properties":{"a":{"type":"string"},
      "n":{"type":"number"},"s":{"type":"string","maxLength":500}},"required":["a","n","s"],
      "additionalProperties":false})");
  ASSERT_NE(grammar, nullptr);
  const std::vector<std::pair<const char*, std::string>> states = {
      {"the beginning", ""},
      {"within a string", "{\"a\": \"b"},
      {"within a number", "{\"a\": \"b\", \"n\": 1"},
      {"within a bounded string", "{\"a\": \"b\", \"n\": 1, \"s\": \"c"}};
  for (const auto& [name, text] : states) {
    Times fresh, kept;
    for (int round = 0; round < 20; ++round) {
      GrammarConstraint constraint({grammar, vocabulary, std::make_shared<MaskCache>()});
      for (char c : text) {
        int32_t token = 0;
        while (vocabulary->text(token) != std::string_view(&c, 1)) ++token;
        ASSERT_TRUE(constraint.Advance(token).ok()) << text;
      }
      for (Times* times : {&fresh, &kept, &kept}) {
        const double start = CpuMicroseconds();
        ASSERT_TRUE(constraint.Mask().ok());
        times->Note(start);
      }
    }
    fresh.Print(absl::StrCat(name, ", computed").c_str());
    kept.Print(absl::StrCat(name, ", kept").c_str());
  }
}

}  // namespace
}  // namespace lowkey::grammar

// The service, the engine and the demo model together: answers under a schema that are complete are
// valid. LOWKEY_SCHEMA_SET_MODEL names another model, LOWKEY_SCHEMA_SET_SIZE the number of schemas.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/synchronization/notification.h"
#include "engine/loader/checkpoint.h"
#include "server/model_files/load_tokenizer.h"
#include "server/text_service.h"
#include "tests/server/grammar/schema/validator.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

// The text of every choice, and how the request ended.
struct Answer {
  std::vector<std::string> texts;
  GenerationResult result;
  absl::Notification done;
};

class AnswerListener : public GenerationListener {
 public:
  explicit AnswerListener(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  SinkAnswer OnDelta(ChoiceDelta delta) override {
    answer_->texts[static_cast<size_t>(delta.choice)] += delta.text;
    return SinkAnswer::kContinue;
  }
  void OnDone(const GenerationResult& result) override {
    answer_->result = result;
    answer_->done.Notify();
  }

 private:
  const std::shared_ptr<Answer> answer_;
};

class StructuredAnswersTest : public testing::Test {
 protected:
  StructuredAnswersTest() {
    const char* model = std::getenv("LOWKEY_SCHEMA_SET_MODEL");
    const std::string path = model == nullptr ? SourcePath("models/tales") : model;
    EngineOptions options;
    options.n_threads = 2;
    options.cache_bytes = 256 << 20;
    engine_ = CreateEngine(OpenCheckpoint(path).value(), options, nullptr).value();
    tokenizer_ = LoadTokenizer(OpenModelFiles(path).value()).value();
    TextService::Options service;
    service.model_name = "m";
    service_ = std::make_unique<TextService>(*engine_, *tokenizer_, service);
  }

  std::shared_ptr<Answer> Ask(const ResponseFormat& format, GenerationRequest request = {}) {
    auto answer = std::make_shared<Answer>();
    answer->texts.resize(static_cast<size_t>(request.n.value_or(1)));
    request.input = std::string("Answer with JSON: ");
    request.response_format = format;
    if (!request.max_new_tokens.has_value()) request.max_new_tokens = 150;
    request.sampling.temperature = 1.0f;
    if (!request.sampling.seed.has_value()) request.sampling.seed = 7;
    const auto id = service_->Generate(request, std::make_unique<AnswerListener>(answer));
    EXPECT_TRUE(id.ok()) << id.status();
    if (!id.ok()) answer->done.Notify();
    return answer;
  }

  static bool IsComplete(const Answer& answer, size_t choice = 0) {
    return choice < answer.result.choices.size() &&
           answer.result.choices[choice].reason == FinishReason::kStopToken;
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<TextService> service_;
};

TEST_F(StructuredAnswersTest, CompleteAnswersAreValid) {
  std::ifstream in(SourcePath("tests/server/grammar/schema/schemas.jsonl"));
  std::vector<nlohmann::ordered_json> schemas;
  for (std::string line; std::getline(in, line);) {
    const auto entry = nlohmann::ordered_json::parse(line);
    if (!entry.contains("refused")) schemas.push_back(entry["schema"]);
  }
  const char* size = std::getenv("LOWKEY_SCHEMA_SET_SIZE");
  const size_t n_wanted = size == nullptr ? 30 : std::strtoul(size, nullptr, 10);
  const size_t step = std::max<size_t>(1, schemas.size() / std::max<size_t>(1, n_wanted));
  std::vector<std::pair<nlohmann::json, std::shared_ptr<Answer>>> asked;
  for (size_t i = 0; i < schemas.size(); i += step) {
    asked.emplace_back(nlohmann::json::parse(schemas[i].dump()),
                       Ask({ResponseFormat::Kind::kJsonSchema, schemas[i].dump()}));
  }
  int n_complete = 0;
  for (const auto& [schema, answer] : asked) {
    answer->done.WaitForNotification();
    ASSERT_TRUE(answer->result.engine.status.ok()) << answer->result.engine.status;
    if (!IsComplete(*answer)) continue;
    ++n_complete;
    const auto value = nlohmann::json::parse(answer->texts[0], nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << answer->texts[0];
    EXPECT_EQ(grammar::WhyInvalid(schema, schema, value), "") << answer->texts[0];
  }
  std::printf("%zu answers, %d complete, all of these valid\n", asked.size(), n_complete);
  EXPECT_GT(n_complete, 0);
}

TEST_F(StructuredAnswersTest, EveryFormGivesTextsOfIt) {
  using Kind = ResponseFormat::Kind;
  GenerationRequest three;
  three.n = 3;
  const auto choice = Ask({Kind::kChoice, "", {"yes", "no, never"}}, three);
  const auto regex = Ask({Kind::kRegex, "[a-c]{3}-[0-9]"}, three);
  const auto grammar = Ask({Kind::kGrammar, "root ::= \"(\" root \")\" | [xy]{2}"}, three);
  for (const auto& answer : {choice, regex, grammar}) answer->done.WaitForNotification();
  for (size_t c = 0; c < 3; ++c) {
    EXPECT_TRUE(IsComplete(*choice, c) && IsComplete(*regex, c));
    EXPECT_TRUE(choice->texts[c] == "yes" || choice->texts[c] == "no, never") << choice->texts[c];
    EXPECT_EQ(regex->texts[c].size(), 5u) << regex->texts[c];
    EXPECT_EQ(regex->texts[c][3], '-');
    const std::string& text = grammar->texts[c];
    if (IsComplete(*grammar, c)) {
      EXPECT_EQ(std::count(text.begin(), text.end(), '('),
                std::count(text.begin(), text.end(), ')'));
    }
  }
}

TEST_F(StructuredAnswersTest, TheSameRequestGivesTheSameAnswerWithOrWithoutDrafts) {
  const ResponseFormat format{ResponseFormat::Kind::kJsonObject};
  GenerationRequest drafted;
  drafted.draft = "lookup";
  const auto a = Ask(format), b = Ask(format), c = Ask(format, drafted);
  for (const auto& answer : {a, b, c}) answer->done.WaitForNotification();
  EXPECT_EQ(a->texts, b->texts);
  EXPECT_EQ(a->texts, c->texts);
}

}  // namespace
}  // namespace lowkey

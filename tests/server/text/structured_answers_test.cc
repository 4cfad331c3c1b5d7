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
#include "server/text/text_service.h"
#include "tests/server/grammar/schema/validator.h"
#include "tests/server/testing.h"
#include "tests/testing/source_path.h"

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
  StructuredAnswersTest() { Start({}); }

  void Start(EngineOptions options) {
    const char* model = std::getenv("LOWKEY_SCHEMA_SET_MODEL");
    const std::string path = model == nullptr ? SourcePath("models/tales") : model;
    service_.reset();
    engine_.reset();
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
    if (!request.sampling.temperature.has_value()) request.sampling.temperature = 1.0f;
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

// Requests with forms that force much of their text, with every mechanism and kind of sampling.
std::vector<std::pair<ResponseFormat, GenerationRequest>> ForcedAnswers() {
  using Kind = ResponseFormat::Kind;
  const std::vector<ResponseFormat> formats = {
      {Kind::kJsonSchema,
       R"({"type":"object","properties":{"first name":{"type":"string","maxLength":8},
           "favorite color":{"enum":["red","green","blue"]},"how old":{"type":"integer"}},
           "required":["first name","favorite color","how old"],"additionalProperties":false})"},
      {Kind::kRegex,
       "Once upon a time there was a (cat|dog) that said: [a-z ]{1,20}\\. The end\\."},
      {Kind::kGrammar, "root ::= (\"Tom said: \" [A-Z] [a-z]{1,9} \". Then \"){1,4} \"he slept\""},
      {Kind::kChoice, "", {"yes, of course", "yes, but not today", "no, never in my life"}}};
  std::vector<std::pair<ResponseFormat, GenerationRequest>> all;
  const std::vector<std::string> mechanisms = {"standard",  "atp",       "taylorshift",
                                               "optimised", "efficient", "super"};
  for (size_t i = 0; i < formats.size() * mechanisms.size(); ++i) {
    GenerationRequest r;
    r.attention.mechanism = mechanisms[i / formats.size()];
    r.sampling.seed = i;
    r.sampling.temperature = static_cast<float>(i % 3) / 2;
    r.n = static_cast<int32_t>(1 + i % 2);
    r.logprobs = 1;
    if (i % 5 == 1) r.sampling.repetition_penalty = 1.3f;
    if (i % 5 == 2) r.sampling.frequency_penalty = 0.5f;
    if (i % 5 == 3) r.sampling.top_p = 0.7f;
    if (i % 5 == 4) r.stop_texts = {"ime there", "lor\"", "of c", "Then he"};
    if (i % 7 == 3) r.draft = "lookup";
    all.emplace_back(formats[i % formats.size()], r);
  }
  return all;
}

TEST_F(StructuredAnswersTest, ForcedTextComesInFewerStepsAndIsTheSame) {
  int64_t n_steps[2] = {}, n_accepted = 0;
  std::vector<std::shared_ptr<Answer>> answers[2];
  for (const bool jumps : {false, true}) {
    EngineOptions options;
    options.jumps_ahead = jumps;
    options.begins_masks = jumps;
    Start(options);
    for (auto [format, request] : ForcedAnswers()) {
      if (!jumps) request.draft = "off";
      answers[jumps].push_back(Ask(format, request));
      answers[jumps].back()->done.WaitForNotification();
    }
    n_steps[jumps] = engine_->Stats().n_steps;
    n_accepted = engine_->Stats().n_accepted_tokens;
  }
  for (size_t i = 0; i < answers[0].size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_TRUE(answers[0][i]->result.engine.status.ok()) << answers[0][i]->result.engine.status;
    EXPECT_EQ(answers[1][i]->texts, answers[0][i]->texts);
    EXPECT_EQ(answers[1][i]->result.engine.n_generated, answers[0][i]->result.engine.n_generated);
    EXPECT_EQ(answers[1][i]->result.engine.finish_reasons,
              answers[0][i]->result.engine.finish_reasons);
  }
  EXPECT_GT(n_accepted, 100);
  EXPECT_LT(n_steps[1], n_steps[0]);
  std::printf("%lld steps instead of %lld\n", static_cast<long long>(n_steps[1]),
              static_cast<long long>(n_steps[0]));
}

}  // namespace
}  // namespace lowkey

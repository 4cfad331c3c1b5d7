// A public checkpoint end to end against what transformers makes of it (tests/golden/
// make_smollm2.py). Needs the file that deploy/fetch_smollm2.sh fetches, named by LOWKEY_SMOLLM2:
// tests/run.sh smollm2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "engine/base/status_macros.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"
#include "server/model_files/load_chat_templates.h"
#include "server/model_files/load_tokenizer.h"
#include "server/text/text_service.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::ElementsAreArray;

constexpr int kNewTokens = 64;

json Golden(const char* name) {
  std::ifstream file(SourcePath("tests/golden/smollm2_135m/").append(name));
  return json::parse(file);
}

std::string ModelPath() {
  const char* path = std::getenv("LOWKEY_SMOLLM2");
  if (path == nullptr) std::cerr << "LOWKEY_SMOLLM2: not set, expected the model's path\n";
  LK_CHECK(path != nullptr);
  return path;
}

struct Generated {
  std::vector<int32_t> tokens;
  double prompt_logprob = 0;
  FinalEvent event;
  absl::Notification done;
};

class GeneratedSink : public Sink {
 public:
  explicit GeneratedSink(Generated& to) : to_(to) {}
  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    for (const PromptLogprob& p : logprobs) to_.prompt_logprob += p.token.logprob;
  }
  SinkAnswer OnToken(int32_t, const SampledToken& token) override {
    to_.tokens.push_back(token.token);
    return SinkAnswer::kContinue;
  }
  void OnDone(const FinalEvent& event) override {
    to_.event = event;
    to_.done.Notify();
  }

 private:
  Generated& to_;
};

// Loaded once: the prompts run together, as requests do.
class SmolLm2Test : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    EngineOptions options;
    options.dtype = EngineOptions::Dtype::kFloat32;
    auto engine = CreateEngine(OpenCheckpoint(ModelPath()).value(), options, nullptr);
    if (!engine.ok()) std::cerr << engine.status() << "\n";
    LK_CHECK(engine.ok());
    engine_ = engine->release();
    tokenizer_ = LoadTokenizer(OpenModelFiles(ModelPath()).value()).value().release();
    service_ = new TextService(
        *engine_, *tokenizer_,
        {"smollm2", Defaults(), LoadChatTemplates(OpenModelFiles(ModelPath()).value())});
  }
  static void TearDownTestSuite() {
    delete service_;
    delete engine_;
    delete tokenizer_;
  }

  static TokenList PromptIds(const json& prompt) {
    if (prompt.contains("text")) {
      EncodeOptions options;
      options.add_bos = false;
      options.add_eos = false;
      return tokenizer_->Encode(prompt["text"].get<std::string>(), options).value();
    }
    Conversation conversation;
    for (const json& message : prompt["messages"]) {
      ChatMessage& to = conversation.messages.emplace_back();
      to.role = message["role"];
      to.content = message["content"].get<std::string>();
    }
    return service_->Tokenize({.input = conversation}).value().tokens;
  }

  static Engine* engine_;
  static Tokenizer* tokenizer_;
  static TextService* service_;
};

Engine* SmolLm2Test::engine_ = nullptr;
Tokenizer* SmolLm2Test::tokenizer_ = nullptr;
TextService* SmolLm2Test::service_ = nullptr;

TEST_F(SmolLm2Test, PromptsBecomeTransformersTokens) {
  const json expected = Golden("expected.json");
  for (const json& prompt : Golden("prompts.json")) {
    const std::string name = prompt["name"];
    EXPECT_THAT(PromptIds(prompt),
                ElementsAreArray(expected[name]["prompt_ids"].get<std::vector<int32_t>>()))
        << name;
  }
}

TEST_F(SmolLm2Test, GreedyTokensAndPromptProbabilitiesEqualTransformers) {
  const json expected = Golden("expected.json");
  ASSERT_EQ(expected.size(), 12u);
  std::map<std::string, Generated> generated;
  for (const auto& [name, golden] : expected.items()) {
    EngineRequest request;
    request.prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
    request.max_new_tokens = kNewTokens;
    request.prompt_logprobs = 0;
    request.sampling.temperature = 0;
    const auto id =
        engine_->Submit(std::move(request), std::make_unique<GeneratedSink>(generated[name]));
    ASSERT_TRUE(id.ok()) << id.status();
  }
  for (const auto& [name, golden] : expected.items()) {
    Generated& g = generated[name];
    g.done.WaitForNotification();
    EXPECT_TRUE(g.event.status.ok()) << g.event.status;
    EXPECT_THAT(g.tokens, ElementsAreArray(golden["tokens"].get<std::vector<int32_t>>())) << name;
    const double n = static_cast<double>(golden["prompt_ids"].size() - 1);
    const double logprob = golden["prompt_logprob"];
    EXPECT_NEAR(std::exp((logprob - g.prompt_logprob) / n), 1.0, 1e-4) << name;
  }
}

}  // namespace
}  // namespace lowkey

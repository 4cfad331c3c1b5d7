// Prompts that begin alike share what was computed, and nothing else shows it.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/runtime/attention_variants.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace lowkey {
namespace {

class EnginePrefixTest : public EngineTest {
 protected:
  struct Outcome {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;
    int32_t n_cached = 0;
  };

  Outcome Run(EngineRequest request) {
    request.sampling.logprobs = 0;
    const auto got = Submit(request);
    const FinalEvent event = got->Wait();
    EXPECT_TRUE(event.status.ok()) << event.status;
    return {got->tokens[0], got->logprobs[0], event.n_cached_tokens};
  }

  // The conversation of a variant, turn by turn: a prompt, the same again, one that leaves it at
  // token 150, and one that goes on from its answer.
  std::vector<Outcome> Converse(const AttentionOptions& attention) {
    EngineRequest first = Request(190, 8);
    first.attention = attention;
    std::vector<Outcome> outcomes = {Run(first), Run(first)};
    EngineRequest branch = first;
    branch.prompt.resize(170);
    for (size_t i = 150; i < branch.prompt.size(); ++i) branch.prompt[i] = 7;
    outcomes.push_back(Run(branch));
    EngineRequest next = first;
    const std::vector<int32_t>& answer = outcomes[0].tokens;
    next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
    next.prompt.insert(next.prompt.end(), {3, 4, 5, 6});
    outcomes.push_back(Run(next));
    return outcomes;
  }
};

TEST_F(EnginePrefixTest, EveryMechanismAnswersAsWithout) {
  for (const int32_t max_batch_tokens : {512, 100}) {
    EngineOptions options;
    options.max_batch_tokens = max_batch_tokens;
    options.keeps_prefixes = false;
    Start(options);
    std::vector<std::vector<Outcome>> expected;
    for (const auto& v : AttentionVariants()) expected.push_back(Converse(v.options));
    options.keeps_prefixes = true;
    Start(options);
    for (size_t i = 0; i < expected.size(); ++i) {
      const AttentionVariant v = AttentionVariants()[i];
      SCOPED_TRACE(v.name);
      const std::vector<Outcome> got = Converse(v.options);
      int32_t n_cached = 0;
      for (size_t turn = 0; turn < got.size(); ++turn) {
        EXPECT_EQ(got[turn].tokens, expected[i][turn].tokens) << "turn " << turn;
        EXPECT_EQ(got[turn].logprobs, expected[i][turn].logprobs) << "turn " << turn;
        EXPECT_EQ(expected[i][turn].n_cached, 0);
        n_cached += got[turn].n_cached;
      }
      EXPECT_EQ(got[0].n_cached, 0);
      EXPECT_GT(n_cached, 0);
    }
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
    EXPECT_GT(engine_->Stats().cache_bytes_prefix, 0);
  }
}

TEST_F(EnginePrefixTest, WholePagesAreSharedAndTheLastRowIsAlwaysComputed) {
  Start();
  EXPECT_EQ(Run(Request(64, 2)).n_cached, 0);
  EXPECT_EQ(Run(Request(64, 2)).n_cached, 0);  // its only page holds the row that gives the token
  EXPECT_EQ(Run(Request(65, 2)).n_cached, 64);
  EXPECT_EQ(Run(Request(200, 2)).n_cached, 64);
  EXPECT_EQ(Run(Request(193, 2)).n_cached, 192);
  EXPECT_EQ(Run(Request(192, 2)).n_cached, 128);
  EXPECT_EQ(engine_->Stats().n_prefix_tokens, 64 + 64 + 192 + 128);
  EXPECT_EQ(engine_->Stats().n_prefix_queries, 64 + 64 + 65 + 200 + 193 + 192);
}

TEST_F(EnginePrefixTest, NothingIsLookedUpWhereNoPrefixIsKept) {
  EngineOptions options;
  options.keeps_prefixes = false;
  Start(options);
  Run(Request(65, 2));
  EXPECT_EQ(engine_->Stats().n_prefix_queries, 0);
  EXPECT_FALSE(engine_->Stats().keeps_prefixes);
}

// A state that stands for all tokens before it exists at ends and marks alone.
TEST_F(EnginePrefixTest, StatesAreKeptAtMarks) {
  Start();
  for (const Mechanism mechanism : {Mechanism::kTaylorShift, Mechanism::kLasso}) {
    SCOPED_TRACE(MechanismName(mechanism));
    EngineRequest marked = Request(240, 2);
    marked.attention.mechanism = mechanism;
    marked.attention.taylorshift.form = TaylorForm::kRecurrent;
    EngineRequest other = marked;
    for (size_t i = 150; i < other.prompt.size(); ++i) other.prompt[i] = 7;
    const Outcome expected = Run(other);
    EXPECT_LE(Run(marked).n_cached, 64);  // the other left its end, and what no state stands for
    EXPECT_EQ(Run(marked).n_cached, 192);

    EngineRequest first = marked;
    first.tenant = "marks";
    first.prefix_marks = {150, 100};
    EXPECT_EQ(Run(first).n_cached, 0);
    other.tenant = "marks";
    const Outcome got = Run(other);
    EXPECT_EQ(got.n_cached, 128);
    EXPECT_EQ(got.tokens, expected.tokens);
    EXPECT_EQ(got.logprobs, expected.logprobs);
    EngineRequest third = first;
    third.prompt[128] = 9;
    EXPECT_EQ(Run(third).n_cached, 128);
    third.prompt[127] = 9;
    EXPECT_EQ(Run(third).n_cached, 64);
  }
}

TEST_F(EnginePrefixTest, AnAnswerIsSharedWithTheNextTurn) {
  Start();
  EngineRequest first = Request(100, 60);
  const Outcome answer = Run(first);
  EngineRequest next = first;
  next.prompt.insert(next.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  EXPECT_EQ(Run(next).n_cached, 128);
}

TEST_F(EnginePrefixTest, ATenantThatFillsTheCacheDropsItsOwnPrefixes) {
  EngineOptions options;
  options.cache_bytes = 40 * PageBytesOfTheEngine();
  Start(options);
  EngineRequest small = Request(190, 2);
  small.tenant = "small";
  Run(small);
  EngineRequest large = Request(190, 2);
  large.tenant = "large";
  for (int32_t i = 0; i < 40; ++i) {  // of different first tokens, and various options
    large.prompt[0] = i + 1;
    large.attention.standard.storage = i % 2 == 0 ? CacheStorage::kInt8 : CacheStorage::kDtype;
    Run(large);
  }
  EXPECT_EQ(Run(large).n_cached, 128);
  EXPECT_EQ(Run(small).n_cached, 128);
  large.prompt[0] = 2;
  EXPECT_EQ(Run(large).n_cached, 0);
}

// Twelve prefixes in int4 hold less than nine in the engine's own type.
TEST_F(EnginePrefixTest, SharesAreCountedInBytes) {
  EngineOptions options;
  options.cache_bytes = 15 * PageBytesOfTheEngine();
  Start(options);
  const auto request = [](const char* tenant, int variant, CacheStorage storage) {
    EngineRequest r = Request(194, 1, variant);  // three pages
    r.tenant = tenant;
    r.attention.standard.storage = storage;
    return r;
  };
  for (int i = 0; i < 4; ++i) Run(request("many small", i, CacheStorage::kInt4));
  for (int i = 0; i < 3; ++i) Run(request("few large", i, CacheStorage::kDtype));
  EngineRequest other = Request(250, 1);  // leaves no room for all of them
  other.tenant = "other";
  Run(other);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Run(request("many small", i, CacheStorage::kInt4)).n_cached, 192) << i;
  }
}

TEST_F(EnginePrefixTest, OtherTenantsAndOptionsSeeNothing) {
  Start();
  EngineRequest r = Request(190, 2);
  Run(r);
  r.tenant = "other";
  EXPECT_EQ(Run(r).n_cached, 0);
  EXPECT_EQ(Run(r).n_cached, 128);
  r.attention.standard.storage = CacheStorage::kInt8;
  EXPECT_EQ(Run(r).n_cached, 0);
  r.tenant = "";
  r.attention = {};
  EXPECT_EQ(Run(r).n_cached, 128);
}

TEST_F(EnginePrefixTest, PromptLogprobsAreAllThere) {
  Start();
  EngineRequest r = Request(190, 2);
  r.prompt_logprobs = 0;
  const auto fresh = Submit(r);
  fresh->Wait();
  const auto again = Submit(r);
  EXPECT_EQ(again->Wait().n_cached_tokens, 0);  // every row's logits are asked for
  ASSERT_EQ(again->prompt_logprobs.size(), 189u);
  r.prompt_logprobs_from = 140;
  const auto part = Submit(r);
  EXPECT_EQ(part->Wait().n_cached_tokens, 128);
  ASSERT_EQ(part->prompt_logprobs.size(), 50u);
  for (size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(part->prompt_logprobs[i].token.logprob,
              fresh->prompt_logprobs[139 + i].token.logprob);
  }
}

TEST_F(EnginePrefixTest, PrefixesGiveWayToRequests) {
  EngineOptions options;
  options.cache_bytes = 256 << 10;  // eight pages of the tiny model
  Start(options);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 20; ++i) {
      EngineRequest r = Request(190, 4, i);
      EXPECT_EQ(Run(r).n_cached, 0) << "of 20 others, each a quarter of the cache";
    }
  }
  EXPECT_EQ(Run(Request(190, 4, 19)).n_cached, 128);
  EXPECT_LE(engine_->Stats().cache_bytes_prefix, 256 << 10);
}

// A prefix that is used holds no more than the request has reserved, or gives way.
TEST_F(EnginePrefixTest, ACacheOfOneRequestServesItWithItsPrefix) {
  const int64_t page_bytes = PageBytesOfTheEngine();
  for (const AttentionVariant& v : AttentionVariants()) {
    SCOPED_TRACE(v.name);
    EngineRequest request = Request(190, 8);
    request.attention = v.options;
    EngineOptions options;
    options.max_batch_tokens = 16;
    options.cache_bytes = page_bytes;
    Start(options);
    const absl::Status refused = Refused(request);
    ASSERT_EQ(refused.code(), absl::StatusCode::kOutOfRange) << refused;
    const std::string message(refused.message());
    const size_t at = message.find("may need ");
    ASSERT_NE(at, std::string::npos) << message;
    options.cache_bytes = std::stoll(message.substr(at + 9));
    Start(options);
    const Outcome first = Run(request), second = Run(request);
    EXPECT_EQ(first.tokens, second.tokens);
    EXPECT_EQ(first.logprobs, second.logprobs);
  }
}

TEST_F(EnginePrefixTest, ChoicesOfSharedPromptsAreAsWithout) {
  EngineRequest r = Request(150, 30);
  r.n = 3;
  r.sampling.temperature = 1;
  r.sampling.seed = 5;
  Start();
  const auto fresh = Submit(r);
  fresh->Wait();
  const auto again = Submit(r);
  EXPECT_EQ(again->Wait().n_cached_tokens, 128);
  EXPECT_EQ(again->tokens, fresh->tokens);
}

}  // namespace
}  // namespace lowkey

// A fault in one request ends that request, and the others do not notice.
#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"
#include "tests/engine/runtime/poisoned_embedding.h"

namespace lowkey {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int32_t kPoison = 95;

class IsolationTest : public EngineTest {
 protected:
  IsolationTest() {
    PoisonEmbedding(model_.File("model.safetensors"), kPoison);
    EngineOptions options;
    options.max_batch_tokens = 64;  // so that prompts come in chunks beside others' rows
    Start(options);
  }

  // Eight streams of every kind that never meet the poisoned token.
  static EngineRequest Good(int i) {
    EngineRequest r = i % 2 == 0 ? Request(20 + 9 * i, 60, i) : AtpRequest(20 + 9 * i, 60, i);
    for (int32_t& token : r.prompt) token %= kPoison;
    r.sampling.logit_bias = {{kPoison, -100.0f}};
    r.sampling.logprobs = 3;
    if (i % 3 == 0) r.sampling.temperature = 1.0f, r.sampling.seed = static_cast<uint64_t>(i);
    return r;
  }

  struct Outcome {
    std::map<int32_t, std::vector<int32_t>> tokens;
    std::map<int32_t, std::vector<float>> logprobs;
    bool operator==(const Outcome&) const = default;
  };

  static Outcome OutcomeOf(Collected& collected) {
    EXPECT_TRUE(collected.Wait().status.ok()) << collected.final_event->status;
    return {collected.tokens, collected.logprobs};
  }

  // Runs the eight alone, and again beside what `disturb` submits; they must be equal to the bit.
  template <typename Disturb>
  void ExpectOthersDoNotNotice(const Disturb& disturb) {
    std::vector<Outcome> alone;
    for (int i = 0; i < 8; ++i) alone.push_back(OutcomeOf(*Submit(Good(i))));
    std::vector<std::shared_ptr<Collected>> together;
    for (int i = 0; i < 4; ++i) together.push_back(Submit(Good(i)));
    disturb();
    for (int i = 4; i < 8; ++i) together.push_back(Submit(Good(i)));
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(OutcomeOf(*together[static_cast<size_t>(i)]), alone[static_cast<size_t>(i)]) << i;
    }
    EXPECT_EQ(engine_->Stats().n_running_requests, 0);
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  }

  static void ExpectInternalError(Collected& collected, const std::string& what) {
    ExpectError(collected, absl::StatusCode::kInternal, what);
  }

  static void ExpectError(Collected& collected, absl::StatusCode code, const std::string& what) {
    const FinalEvent event = collected.Wait();
    EXPECT_EQ(event.status.code(), code);
    EXPECT_THAT(std::string(event.status.message()), HasSubstr(what));
    EXPECT_THAT(event.finish_reasons, Each(FinishReason::kError));
    EXPECT_EQ(collected.n_done_calls, 1);
  }
};

TEST_F(IsolationTest, NaNLogitsOfAnyMechanismEndTheirRequestAlone) {
  std::vector<std::shared_ptr<Collected>> bad;
  ExpectOthersDoNotNotice([&] {
    for (const MechanismInfo& info : engine_->mechanisms()) {
      for (size_t at : {size_t{0}, size_t{70}, size_t{149}}) {
        EngineRequest r = Request(150, 40);
        if (info.id == Mechanism::kAtp) r = AtpRequest(150, 40);
        for (int32_t& token : r.prompt) token %= kPoison;
        r.attention.mechanism = info.id;
        r.prompt[at] = kPoison;
        bad.push_back(Submit(r));
      }
    }
  });
  EXPECT_GE(bad.size(), 15u);
  for (const auto& collected : bad) ExpectInternalError(*collected, "NaN");
}

TEST_F(IsolationTest, ANaNThatIsSampledLaterEndsTheRequestAtItsNextToken) {
  std::shared_ptr<Collected> bad;
  ExpectOthersDoNotNotice([&] {
    EngineRequest r = Good(1);
    r.sampling.logit_bias = {{kPoison, 100.0f}};
    bad = Submit(r);
  });
  ExpectInternalError(*bad, "NaN");
  EXPECT_EQ(bad->tokens[0], std::vector<int32_t>{kPoison});
}

TEST_F(IsolationTest, AnExceptionInASinkEndsItsRequestAlone) {
  std::vector<std::shared_ptr<Collected>> bad;
  ExpectOthersDoNotNotice([&] {
    for (int n : {1, 5}) {
      EngineRequest r = Good(2);
      r.n = 3;
      bad.push_back(Submit(r, [n, seen = 0](int32_t choice, int32_t) mutable {
        if (choice == 1 && ++seen == n) throw std::bad_alloc();
        return SinkAnswer::kContinue;
      }));
    }
    bad.push_back(Submit(Good(3), [](int32_t, int32_t) -> SinkAnswer { throw 7; }));
  });
  ExpectError(*bad[0], absl::StatusCode::kResourceExhausted, "no memory left");
  ExpectError(*bad[1], absl::StatusCode::kResourceExhausted, "no memory left");
  ExpectInternalError(*bad[2], "");
}

// Its last call is the one that fails: there is nobody left to tell.
TEST_F(IsolationTest, AnExceptionInASinksOnDoneIsForgottenWithTheSink) {
  struct Failing : Sink {
    SinkAnswer OnToken(int32_t, const SampledToken&) override { throw std::bad_alloc(); }
    void OnDone(const FinalEvent&) override { throw std::bad_alloc(); }
  };
  ExpectOthersDoNotNotice(
      [&] { EXPECT_TRUE(engine_->Submit(Good(2), std::make_unique<Failing>()).ok()); });
  EXPECT_TRUE(engine_->Drain(absl::Now() + absl::Seconds(60)));
}

}  // namespace
}  // namespace lowkey

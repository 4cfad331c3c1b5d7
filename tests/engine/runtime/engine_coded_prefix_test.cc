// Prompts whose whole blocks are kept in a calibrated code: what a row reads follows from positions
// alone, so that neither a hit nor company nor preemption shows.
#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/calibration/coded_model.h"
#include "tests/engine/runtime/collecting_sink.h"
#include "tests/testing/emulated/emulated_device.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class EngineCodedPrefixTest : public ::testing::Test {
 protected:
  EngineCodedPrefixTest() : codes_(coded_.Calibrate()) {}

  void Start(EngineOptions options = {}) {
    if (options.n_threads == 0) options.n_threads = 2;
    if (options.cache_bytes == 0) options.cache_bytes = 64 << 20;
    if (options.device == nullptr) options.codes = codes_;
    auto engine = CreateEngine(coded_.checkpoint(), options, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  static EngineRequest Request(int n_prompt, int n_new, int variant = 0,
                               int32_t centibits = kDefaultCentibits) {
    EngineRequest r;
    for (int i = 0; i < n_prompt; ++i) {
      r.prompt.push_back(3 + (i * i * 31 + i * (variant + 7) + variant * 17) % 93);
    }
    r.max_new_tokens = n_new;
    r.attention.standard.prefix_storage.centibits = centibits;
    r.sampling.logprobs = 0;
    return r;
  }

  std::shared_ptr<Collected> Submit(const EngineRequest& request) {
    auto to = std::make_shared<Collected>();
    const auto id = engine_->Submit(request, std::make_unique<CollectingSink>(to));
    EXPECT_TRUE(id.ok()) << id.status();
    return to;
  }

  std::shared_ptr<Collected> Run(const EngineRequest& request) {
    auto got = Submit(request);
    EXPECT_TRUE(got->Wait().status.ok()) << got->final_event->status;
    return got;
  }

  static void ExpectSame(const Collected& a, const Collected& b) {
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.logprobs, b.logprobs);
    ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size());
    for (size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
      EXPECT_EQ(a.prompt_logprobs[i].token.logprob, b.prompt_logprobs[i].token.logprob) << i;
    }
  }

  const CodedModel coded_;
  const std::shared_ptr<const PrincipalCodes> codes_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineCodedPrefixTest, AnswersAreTheSameHoweverStepsAreCutHitOrMiss) {
  const EngineRequest request = Request(1300, 30);
  EngineOptions options;
  options.keeps_prefixes = false;
  Start(options);
  const auto expected = Run(request);
  EXPECT_EQ(expected->final_event->attention.n_coded_tokens, 1024);
  EXPECT_TRUE(expected->final_event->attention.is_approximate);
  for (const int32_t max_batch_tokens : {512, 100, 700}) {
    for (const int n_threads : {1, 2}) {
      SCOPED_TRACE(max_batch_tokens * 10 + n_threads);
      options = {};
      options.max_batch_tokens = max_batch_tokens;
      options.max_running_seqs = 16;
      options.n_threads = n_threads;
      Start(options);
      for (const int32_t n_cached : {0, 1024, 1024}) {
        const auto got = Run(request);
        EXPECT_EQ(got->final_event->n_cached_tokens, n_cached);
        EXPECT_EQ(got->final_event->attention.n_coded_tokens, 1024);
        ExpectSame(*got, *expected);
      }
      EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
      EXPECT_GT(engine_->Stats().cache_bytes_prefix, 0);
    }
  }
}

TEST_F(EngineCodedPrefixTest, LaterRowsReadTheCodeAndOnlyThey) {
  Start();
  EngineRequest request = Request(700, 1);
  request.prompt_logprobs = 0;
  const auto coded = Run(request);
  request.attention.standard.prefix_storage = {};
  const auto exact = Run(request);
  EXPECT_EQ(exact->final_event->n_cached_tokens, 0);
  ASSERT_EQ(coded->prompt_logprobs.size(), 699u);
  double difference = 0;
  for (size_t i = 0; i < 699; ++i) {
    const float a = coded->prompt_logprobs[i].token.logprob;
    const float b = exact->prompt_logprobs[i].token.logprob;
    // Row i gives the token at position i + 1.
    if (i < 512) {
      EXPECT_EQ(a, b) << i;
    } else {
      difference = std::max<double>(difference, std::abs(a - b));
    }
  }
  EXPECT_GT(difference, 0);
  EXPECT_LT(difference, 0.5);
  // With 8 bits nearly all of it comes back.
  request.attention.standard.prefix_storage.centibits = kMaxCentibits;
  const auto fine = Run(request);
  double fine_difference = 0;
  for (size_t i = 512; i < 699; ++i) {
    fine_difference = std::max<double>(
        fine_difference,
        std::abs(fine->prompt_logprobs[i].token.logprob - exact->prompt_logprobs[i].token.logprob));
  }
  EXPECT_LT(fine_difference, difference / 3);
}

TEST_F(EngineCodedPrefixTest, APromptWithoutAWholeBlockIsExact) {
  Start();
  const auto coded = Run(Request(511, 20));
  const auto exact = Run(Request(511, 20, 0, 0));
  EXPECT_EQ(coded->final_event->attention.n_coded_tokens, 0);
  ExpectSame(*coded, *exact);
}

TEST_F(EngineCodedPrefixTest, PrefixesOfOtherBitsAreNotShared) {
  Start();
  for (const int32_t centibits : {0, 245, 330}) {
    EXPECT_EQ(Run(Request(1030, 2, 0, centibits))->final_event->n_cached_tokens, 0) << centibits;
  }
  EXPECT_EQ(Run(Request(1030, 2, 0, 0))->final_event->n_cached_tokens, 1024);
  EXPECT_EQ(Run(Request(1030, 2, 0, 330))->final_event->n_cached_tokens, 1024);
}

TEST_F(EngineCodedPrefixTest, ThePromptsOwnEndDecidesWhatIsFound) {
  Start();
  EXPECT_EQ(Run(Request(1024, 4))->final_event->attention.n_coded_tokens, 1024);
  // The last row has to be computed, and its block with it.
  const auto again = Run(Request(1024, 4));
  EXPECT_EQ(again->final_event->n_cached_tokens, 512);
  const auto longer = Run(Request(1025, 4));
  EXPECT_EQ(longer->final_event->n_cached_tokens, 1024);
  EngineOptions options;
  options.keeps_prefixes = false;
  Start(options);
  ExpectSame(*again, *Run(Request(1024, 4)));
  ExpectSame(*longer, *Run(Request(1025, 4)));
}

TEST_F(EngineCodedPrefixTest, ConversationsGoOnAsWithoutPrefixes) {
  const auto converse = [&] {
    std::vector<std::shared_ptr<Collected>> turns;
    EngineRequest request = Request(600, 40);
    for (int turn = 0; turn < 6; ++turn) {
      turns.push_back(Run(request));
      const std::vector<int32_t>& answer = turns.back()->tokens[0];
      request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
      for (int i = 0; i < 150; ++i) request.prompt.push_back(3 + (i * 7 + turn) % 90);
    }
    return turns;
  };
  EngineOptions options;
  options.keeps_prefixes = false;
  Start(options);
  const auto without = converse();
  Start();
  const auto with = converse();
  for (size_t turn = 0; turn < with.size(); ++turn) {
    SCOPED_TRACE(turn);
    ExpectSame(*with[turn], *without[turn]);
  }
  EXPECT_EQ(with.back()->final_event->n_cached_tokens, 1024);
}

TEST_F(EngineCodedPrefixTest, CompanyAndChoicesDoNotShow) {
  EngineOptions options;
  options.max_batch_tokens = 300;
  Start(options);
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 5; ++i) {
    EngineRequest r = Request(900 + 97 * i, 20, i, i % 2 == 0 ? 245 : 0);
    r.n = 1 + i % 3;
    r.sampling.temperature = 1;
    r.sampling.seed = static_cast<uint64_t>(i);
    if (i == 2) r.prompt_logprobs = 0;
    requests.push_back(r);
  }
  std::vector<std::shared_ptr<Collected>> alone, together;
  for (const EngineRequest& r : requests) alone.push_back(Run(r));
  Start(options);
  for (const EngineRequest& r : requests) together.push_back(Submit(r));
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(together[i]->Wait().status.ok()) << together[i]->final_event->status;
    ExpectSame(*together[i], *alone[i]);
  }
}

TEST_F(EngineCodedPrefixTest, PreemptionDoesNotShow) {
  constexpr int kRequests = 4;
  const auto request = [](int i) {
    EngineRequest r = Request(530 + 60 * i, 600, i);
    r.sampling.temperature = 1;
    r.sampling.seed = static_cast<uint64_t>(i);
    return r;
  };
  Start();
  std::vector<std::shared_ptr<Collected>> alone;
  int64_t peak_bytes = 0;
  for (int i = 0; i < kRequests; ++i) {
    alone.push_back(Run(request(i)));
    peak_bytes = std::max(peak_bytes, alone.back()->final_event->attention.peak_cache_bytes);
  }
  for (const bool keeps_prefixes : {false, true}) {
    SCOPED_TRACE(keeps_prefixes);
    EngineOptions options;
    options.keeps_prefixes = keeps_prefixes;
    options.cache_bytes = 2 * peak_bytes + (1 << 17);
    Start(options);
    // So many short answers that long ones are not reserved for.
    for (int i = 0; i < 60; ++i) {
      auto to = std::make_shared<Collected>();
      to->on_token = [](int32_t, int32_t) { return SinkAnswer::kStop; };
      ASSERT_TRUE(engine_->Submit(Request(3, 600, i), std::make_unique<CollectingSink>(to)).ok());
      to->Wait();
    }
    std::vector<std::shared_ptr<Collected>> together;
    for (int i = 0; i < kRequests; ++i) together.push_back(Submit(request(i)));
    for (int i = 0; i < kRequests; ++i) {
      SCOPED_TRACE(i);
      ASSERT_TRUE(together[i]->Wait().status.ok()) << together[i]->final_event->status;
      ExpectSame(*together[i], *alone[i]);
    }
    EXPECT_GT(engine_->Stats().n_preemptions, 0);
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  }
}

// Returns how many of n prompts of 513 tokens, computed one after the other, are still found.
int64_t NumFound(Engine& engine, const std::function<EngineRequest(int)>& request, int n) {
  const auto run = [&](int i) {
    auto to = std::make_shared<Collected>();
    EXPECT_TRUE(engine.Submit(request(i), std::make_unique<CollectingSink>(to)).ok());
    return to->Wait().n_cached_tokens;
  };
  for (int i = 0; i < n; ++i) run(i);
  int64_t n_found = 0;
  while (n_found < n && run(n - 1 - static_cast<int>(n_found)) == 512) ++n_found;
  return n_found;
}

TEST_F(EngineCodedPrefixTest, ABudgetHoldsSixTimesAsManyPrefixes) {
  Start();
  const int64_t exact_bytes = Run(Request(513, 1, 0, 0))->final_event->attention.cache_bytes;
  EngineOptions options;
  options.cache_bytes = 5 * exact_bytes;
  constexpr int kPrompts = 36;
  Start(options);
  const int64_t n_exact = NumFound(
      *engine_, [](int i) { return Request(513, 1, i, 0); }, kPrompts);
  EXPECT_GE(n_exact, 3);
  Start(options);
  const int64_t n_coded = NumFound(
      *engine_, [](int i) { return Request(513, 1, i); }, kPrompts);
  EXPECT_GE(n_coded, 6 * n_exact);
}

TEST_F(EngineCodedPrefixTest, AFullCacheGivesCodesUpAndRequestsGoOn) {
  EngineOptions options;
  Start();
  const int64_t exact_bytes = Run(Request(1100, 1, 0, 0))->final_event->attention.cache_bytes;
  options.cache_bytes = exact_bytes + exact_bytes / 2;
  Start(options);
  for (int i = 0; i < 12; ++i) {
    const auto coded = Run(Request(1050, 2, i % 3));
    EXPECT_EQ(coded->final_event->attention.n_coded_tokens, 1024);
    Run(Request(1090, 2, i, 0));  // takes nearly all of the cache
  }
}

TEST_F(EngineCodedPrefixTest, RefusesWhatItCannotDoByName) {
  const auto refused = [&](const EngineRequest& request) {
    return engine_->Submit(request, std::make_unique<CollectingSink>(std::make_shared<Collected>()))
        .status();
  };
  EngineOptions options;
  options.n_threads = 1;
  engine_ = CreateEngine(coded_.checkpoint(), options, nullptr).value();
  const absl::Status uncalibrated = refused(Request(600, 1));
  EXPECT_EQ(uncalibrated.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(uncalibrated.message()), HasSubstr("prefix_storage: calibrated:2.45"));
  Start();
  EngineRequest request = Request(600, 1);
  request.attention.standard.storage = CacheStorage::kInt8;
  EXPECT_EQ(refused(request).code(), absl::StatusCode::kInvalidArgument);
  request.attention.mechanism = Mechanism::kAtp;  // does not read standard's options
  EXPECT_TRUE(refused(request).ok());

  PrincipalCodes wrong = *codes_;
  wrong.prefixes.n_layers = 1;
  options.codes = std::make_shared<const PrincipalCodes>(wrong);
  EXPECT_EQ(CreateEngine(coded_.checkpoint(), options, nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
  options.codes = codes_;
  options.device = std::make_shared<EmulatedDevice>();
  options.cache_bytes = 64 << 20;
  engine_ = CreateEngine(coded_.checkpoint(), options, nullptr).value();
  EXPECT_THAT(std::string(refused(Request(600, 1)).message()),
              HasSubstr("expected exact on a device"));
}

TEST_F(EngineCodedPrefixTest, ABf16CacheWorksToo) {
  const CodedModel narrow(3, DType::kBF16);
  EngineOptions options;
  options.n_threads = 2;
  options.cache_bytes = 64 << 20;
  options.codes = narrow.Calibrate();
  engine_ = CreateEngine(narrow.checkpoint(), options, nullptr).value();
  const auto first = Run(Request(1300, 20)), second = Run(Request(1300, 20));
  EXPECT_EQ(second->final_event->n_cached_tokens, 1024);
  ExpectSame(*first, *second);
}

}  // namespace
}  // namespace lowkey

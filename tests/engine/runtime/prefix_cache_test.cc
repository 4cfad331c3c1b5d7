#include "engine/runtime/prefix_cache.h"

#include <memory>
#include <vector>

#include "engine/attention/standard/policy.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

constexpr int64_t kPages = 100, kPageSize = 4096;

// Standard attention's prefixes, without its arithmetic.
class PagesAlone : public StandardPolicy {
 public:
  PagesAlone() : StandardPolicy(Mechanism::kStandard, {}) {}
  absl::Status Plan(absl::Span<const Segment>) override { return absl::OkStatus(); }
  void Attend(const LayerRows&) override {}
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override {
    ++n_prefixes;
    return StandardPolicy::Prefix(sequence, n_computed, n_tokens);
  }
  mutable int n_prefixes = 0;
};

class PrefixCacheTest : public ::testing::Test {
 protected:
  // A request of n_pages whole pages and a token, `last` its last page's tokens.
  static std::unique_ptr<RequestState> State(int64_t n_pages, int32_t last) {
    EngineRequest request;
    request.prompt.assign(n_pages * kPageTokens + 1, 1);
    for (int64_t i = 0; i < kPageTokens; ++i) request.prompt.end()[-2 - i] = last;
    return std::make_unique<RequestState>(1, request, nullptr, absl::Now());
  }
  void Compute(RequestState& state) {
    SequenceCache& sequence = state.choices[0].cache;
    sequence.n_tokens = state.n_prompt_tokens();
    while (static_cast<int64_t>(sequence.pages.size()) < PagesFor(sequence.n_tokens)) {
      sequence.pages.push_back(cache_->AllocatePage().value());
    }
    prefixes_.Save(state, mechanism_, sequence.n_tokens);
  }
  static std::vector<MemoryId> Ids(const RequestState& state, int64_t n_pages) {
    std::vector<MemoryId> ids;
    for (int64_t i = 0; i < n_pages; ++i) ids.push_back(state.choices[0].cache.pages.at(i).id());
    return ids;
  }

  const std::unique_ptr<Cache> cache_ = Cache::Create(1000 * kPageSize, kPageSize).value();
  const PagesAlone mechanism_;
  PrefixCache prefixes_;
};

TEST_F(PrefixCacheTest, TheListOfALongPromptsPagesIsMadeOnce) {
  const auto first = State(kPages, 1);
  Compute(*first);
  EXPECT_EQ(mechanism_.n_prefixes, 1);
  const auto again = State(kPages, 1);
  EXPECT_EQ(prefixes_.Restore(*again, mechanism_), kPages * kPageTokens);
  EXPECT_EQ(again->choices[0].cache.n_tokens, kPages * kPageTokens);
  EXPECT_EQ(again->choices[0].cache.pages.size(), static_cast<size_t>(kPages));
  EXPECT_EQ(Ids(*again, kPages), Ids(*first, kPages));
}

TEST_F(PrefixCacheTest, PromptsThatPartGoOnFromWhatTheyShare) {
  const auto first = State(kPages, 1), second = State(kPages / 2, 2);
  Compute(*first);
  const int64_t n_shared = kPages / 2 - 1;
  ASSERT_EQ(prefixes_.Restore(*second, mechanism_), n_shared * kPageTokens);
  Compute(*second);
  const auto again = State(kPages / 2, 2);
  EXPECT_EQ(prefixes_.Restore(*again, mechanism_), (n_shared + 1) * kPageTokens);
  EXPECT_EQ(Ids(*again, n_shared), Ids(*first, n_shared));
  EXPECT_EQ(Ids(*again, n_shared + 1), Ids(*second, n_shared + 1));
}

// Each page goes back with the prefix that added it, the last page first.
TEST_F(PrefixCacheTest, PagesGoBackOneByOne) {
  const auto first = State(kPages, 1);
  Compute(*first);
  first->ReleaseCache();
  for (int64_t n = kPages; n > 0; --n) {
    ASSERT_EQ(cache_->used_bytes(), n * kPageSize);
    const auto again = State(kPages, 1);
    ASSERT_EQ(prefixes_.Restore(*again, mechanism_), n * kPageTokens);
    again->ReleaseCache();
    ASSERT_TRUE(prefixes_.DropOldest());
  }
  EXPECT_EQ(cache_->used_bytes(), 0);
  EXPECT_FALSE(prefixes_.DropOldest());
}

}  // namespace
}  // namespace lowkey

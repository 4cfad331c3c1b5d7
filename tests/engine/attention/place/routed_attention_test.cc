#include "engine/attention/place/routed_attention.h"

#include <set>

#include "engine/attention/atp/host.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = 300;

AttentionOptions Blocks64(int32_t refine_tokens) {
  AtpOptions o{RankFixed{8}, AtpBasis::kLayer, AtpPrefill::kCompressed, 64, 4, 0};
  o.refine_tokens = refine_tokens;
  return Atp(o);
}
const AttentionOptions kFirst = Blocks64(0), kSecond = Blocks64(16);

bool RefinesNot(const AttentionOptions& options) { return options.atp.refine_tokens == 0; }

// A part of a routed mechanism, which tells what it was asked.
class Asked : public HostAtp {
 public:
  Asked(const AttentionContext& context, std::optional<int64_t> max_tokens, uint64_t key)
      : HostAtp(context), max_tokens_(max_tokens), key_(key) {}

  std::optional<int64_t> max_tokens() const override { return max_tokens_; }
  std::optional<uint64_t> PlanKey() const override { return key_; }
  void Attend(const LayerRows& rows) override {
    ++n_attended;
    HostAtp::Attend(rows);
  }

  int64_t n_attended = 0;

 private:
  const std::optional<int64_t> max_tokens_;
  const uint64_t key_;
};

Asked* first = nullptr;
Asked* second = nullptr;

std::unique_ptr<AttentionMechanism> MakeRouted(const AttentionContext& context) {
  auto one = std::make_unique<Asked>(context, std::nullopt, 1);
  auto other = std::make_unique<Asked>(context, 1000, 2);
  first = one.get();
  second = other.get();
  return std::make_unique<RoutedAttention>(std::move(one), RefinesNot, std::move(other));
}

AttentionGeometry Geometry() { return {2, 4, 2, 20, std::nullopt, StorageType::kFloat32}; }

class RoutedAttentionTest : public testing::Test {
 protected:
  RoutedAttentionTest()
      : runner_(Geometry(), Mechanism::kAtp,
                {1, int64_t{1} << 28, Mechanism::kEfficient, {}, MakeRouted}) {}

  std::vector<float> Alone(uint32_t seed, const AttentionOptions& options) {
    return RunSequence(Rows(seed), {options});
  }
  AttentionRows Rows(uint32_t seed) { return RandomRows(Geometry(), kTokens, seed); }

  MechanismRunner runner_;
};

TEST_F(RoutedAttentionTest, SequencesOfOneStepHaveTheBitsThatTheirOwnWayGives) {
  const AttentionRows rows[] = {Rows(1), Rows(2), Rows(3)};
  const AttentionOptions options[] = {kSecond, kFirst, kSecond};
  SequenceCache sequences[3];
  std::vector<float> outs[3];
  for (int i = 0; i < 3; ++i) sequences[i] = NewSequence(options[i], kTokens);
  while (sequences[0].n_tokens < kTokens) {
    const int64_t n = std::min<int64_t>(37, kTokens - sequences[0].n_tokens);
    ASSERT_TRUE(runner_
                    .Step({{&sequences[0], &rows[0], n, &outs[0]},
                           {&sequences[1], &rows[1], n, &outs[1]},
                           {&sequences[2], &rows[2], n, &outs[2]}})
                    .ok());
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(SameBits(outs[i], Alone(static_cast<uint32_t>(i + 1), options[i]))) << i;
  }
}

TEST_F(RoutedAttentionTest, AWayWithoutSequencesIsNotAskedToAttend) {
  const AttentionRows rows = Rows(1);
  std::vector<float> out;
  SequenceCache one = NewSequence(kFirst, kTokens), other = NewSequence(kSecond, kTokens);
  ASSERT_TRUE(runner_.Step({{&one, &rows, 100, &out}}).ok());
  EXPECT_EQ(first->n_attended, 2);
  EXPECT_EQ(second->n_attended, 0);
  EXPECT_EQ(runner_.mechanism().PlanKey(), 1u);
  ASSERT_TRUE(runner_.Step({{&other, &rows, 100, &out}}).ok());
  EXPECT_EQ(first->n_attended, 2);
  EXPECT_EQ(second->n_attended, 2);
  EXPECT_EQ(runner_.mechanism().PlanKey(), std::nullopt);
}

TEST_F(RoutedAttentionTest, OptionsAskTheWayThatServesThem) {
  const SequenceBound bound{200, 400, 100, 400};
  const AttentionMechanism& routed = runner_.mechanism();
  EXPECT_EQ(routed.id(), Mechanism::kAtp);
  EXPECT_EQ(routed.max_tokens(), 1000);
  for (const AttentionOptions& o : {kFirst, kSecond}) {
    const AttentionMechanism& way = o == kFirst ? *first : *second;
    EXPECT_TRUE(routed.CheckAvailable(o).ok());
    EXPECT_EQ(routed.BoundBytes(o, bound), way.BoundBytes(o, bound));
    EXPECT_EQ(routed.HeldBytes(o, 300), way.HeldBytes(o, 300));
    EXPECT_EQ(routed.Work(o, 300).prefill, way.Work(o, 300).prefill);
    const AttentionRows rows = Rows(1);
    std::vector<float> out;
    SequenceCache sequence = NewSequence(o, kTokens);
    ASSERT_TRUE(runner_.Step({{&sequence, &rows, 150, &out}}).ok());
    const auto prefix = routed.Prefix(sequence, 150, 64);
    ASSERT_TRUE(prefix.has_value());
    EXPECT_EQ(prefix->state.As<AtpState>().blocks,
              way.Prefix(sequence, 150, 64)->state.As<AtpState>().blocks);
  }
}

// The first way has planned when the second finds the cache full; its next plan is another.
TEST_F(RoutedAttentionTest, AStepThatOneWayCannotPlanLeavesTheOthersSequencesValid) {
  const AttentionRows rows = Rows(1), other_rows = Rows(2);
  SequenceCache one = NewSequence(kFirst, kTokens), other = NewSequence(kSecond, kTokens);
  std::vector<float> out, other_out;
  Cache& cache = runner_.cache();
  ASSERT_TRUE(runner_.Step({{&one, &rows, 60, &out}, {&other, &other_rows, 60, &other_out}}).ok());
  // Enough for all that the first way takes for one more page and the block that closes.
  auto hog = cache.AllocateSlab(cache.budget_bytes() - cache.used_bytes() -
                                2 * PageBytes(Geometry()) - (int64_t{1} << 14));
  ASSERT_TRUE(hog.ok());
  EXPECT_EQ(runner_.Step({{&one, &rows, 10, &out}, {&other, &other_rows, 140, &other_out}}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(one.state.As<AtpState>().blocks.size(), 1u)
      << "the first way has not planned before the second failed";
  hog->reset();
  ASSERT_TRUE(runner_.Step({{&one, &rows, 20, &out}}).ok());
  ASSERT_TRUE(
      runner_.Step({{&one, &rows, 220, &out}, {&other, &other_rows, 240, &other_out}}).ok());
  EXPECT_TRUE(SameBits(out, Alone(1, kFirst)));
  EXPECT_TRUE(SameBits(other_out, Alone(2, kSecond)));
}

}  // namespace
}  // namespace lowkey

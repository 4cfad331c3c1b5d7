#include "engine/attention/selection/selection.h"

#include <memory>
#include <vector>

#include "engine/config/attention_option_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

// A mechanism that does nothing and costs what a test says.
class PricedMechanism : public AttentionMechanism {
 public:
  struct Price {
    double work_per_pair = 1;   // multiply-adds a token and token seen
    double work_per_token = 0;  // besides
    int64_t bytes_per_token = 1;
    int64_t fixed_bytes = 0;
    std::optional<int64_t> max_tokens = std::nullopt;
  };
  PricedMechanism(Mechanism id, const Price& price) : id_(id), price_(price) {}

  Mechanism id() const override { return id_; }
  absl::Status CheckAvailable(const AttentionOptions&) const override { return absl::OkStatus(); }
  std::optional<int64_t> max_tokens() const override { return price_.max_tokens; }
  int64_t BoundBytes(const AttentionOptions&, const SequenceBound& bound) const override {
    return price_.fixed_bytes + bound.n_tokens * price_.bytes_per_token;
  }
  AttentionWork Work(const AttentionOptions&, int64_t n) const override {
    const auto tokens = static_cast<double>(n);
    return {tokens * (tokens / 2 * price_.work_per_pair + price_.work_per_token),
            tokens * price_.work_per_pair + price_.work_per_token};
  }
  absl::Status Plan(absl::Span<const Segment>) override { return absl::OkStatus(); }
  void Attend(const LayerRows&) override {}
  void Advance(SequenceCache&, int64_t) override {}

 private:
  const Mechanism id_;
  const Price price_;
};

class SelectionTest : public testing::Test {
 protected:
  SelectionTest() { profile_.linear = {{1, 1}}; }

  void Add(Mechanism id, const PricedMechanism::Price& price,
           std::vector<PerplexityRatios::Point> ratios = {}) {
    mechanisms_.push_back(std::make_unique<PricedMechanism>(id, price));
    SelectionCandidate candidate{mechanisms_.back().get(), {}, 0, PerplexityRatios(ratios)};
    candidate.options.mechanism = id;
    candidate.is_approximate = IsApproximate(candidate.options);
    candidates_.push_back(candidate);
    SetRates(id, {{1, 1, 1}});
  }
  void SetRates(Mechanism id, const std::vector<AttentionRate>& rates) {
    AttentionOptions options;
    options.mechanism = id;
    profile_.rates[AttentionLabel(options)] = rates;
  }
  // Standard is quadratic; efficient costs 1,000 a token, and so wins past 1,000 tokens of decode.
  void AddTwo() {
    Add(Mechanism::kStandard, {.work_per_pair = 1, .bytes_per_token = 8});
    Add(Mechanism::kEfficient, {.work_per_pair = 0, .work_per_token = 1000, .bytes_per_token = 4},
        {{1, 1.1}});
  }
  // A floor that every measured candidate of these tests passes, unless the rules have one.
  absl::StatusOr<Selection> Select(SelectionRules rules, const RequestLengths& lengths) {
    if (!rules.max_perplexity_ratio.has_value()) rules.max_perplexity_ratio = 2;
    return SelectMechanism(candidates_, profile_, rules, lengths, 8192);
  }
  Mechanism Choose(const SelectionRules& rules, const RequestLengths& lengths) {
    const auto selection = Select(rules, lengths);
    EXPECT_TRUE(selection.ok()) << selection.status();
    return selection.ok() ? selection->options.mechanism : Mechanism::kLasso;
  }

  std::vector<std::unique_ptr<PricedMechanism>> mechanisms_;
  std::vector<SelectionCandidate> candidates_;
  SelectionProfile profile_;
};

TEST_F(SelectionTest, LatencyTakesTheFastestAtTheRequestsLength) {
  AddTwo();
  const SelectionRules rules{.objective = Objective::kLatency};
  EXPECT_EQ(Choose(rules, {64, 64}), Mechanism::kStandard);
  EXPECT_EQ(Choose(rules, {4096, 64}), Mechanism::kEfficient);
}

TEST_F(SelectionTest, CrossoversAreWhereTheAnswerChanges) {
  AddTwo();
  const SelectionRules rules{.objective = Objective::kLatency};
  const auto selection = Select(rules, {64, 0});
  ASSERT_TRUE(selection.ok());
  ASSERT_EQ(selection->crossovers.size(), 1u);
  // n^2 / 2 = 1000 n at 2,000 tokens of prompt: the first multiple of 64 past it.
  EXPECT_EQ(selection->crossovers[0].tokens, 2048);
  EXPECT_EQ(selection->crossovers[0].from, Mechanism::kStandard);
  EXPECT_EQ(selection->crossovers[0].to, Mechanism::kEfficient);
}

TEST_F(SelectionTest, MeasuredRatesMoveTheCrossover) {
  AddTwo();
  SetRates(Mechanism::kEfficient, {{1, 4, 4}});
  const SelectionRules rules{.objective = Objective::kLatency};
  const auto selection = Select(rules, {64, 0});
  ASSERT_TRUE(selection.ok());
  EXPECT_EQ(selection->crossovers[0].tokens, 512);
}

TEST_F(SelectionTest, MemoryTakesTheSmallestCache) {
  AddTwo();
  EXPECT_EQ(Choose({.objective = Objective::kMemory}, {64, 1}), Mechanism::kEfficient);
}

TEST_F(SelectionTest, BalancedPrefersQualityUntilItCostsTheMargin) {
  AddTwo();
  const SelectionRules rules{.objective = Objective::kBalanced, .margin = 1.25};
  EXPECT_EQ(Choose(rules, {2200, 0}), Mechanism::kStandard);   // 1.1 times the fastest
  EXPECT_EQ(Choose(rules, {2600, 0}), Mechanism::kEfficient);  // 1.3 times
}

TEST_F(SelectionTest, ApproximateMechanismsNeedLeave) {
  AddTwo();
  Add(Mechanism::kAtp, {.work_per_pair = 0, .work_per_token = 1, .bytes_per_token = 1}, {{1, 1.2}});
  SelectionRules rules{.objective = Objective::kMemory};
  EXPECT_EQ(Choose(rules, {4096, 64}), Mechanism::kEfficient);
  rules.allow_approximate = true;
  EXPECT_EQ(Choose(rules, {4096, 64}), Mechanism::kAtp);
}

TEST_F(SelectionTest, AQuantizedCacheNeedsLeaveAndIsMeasured) {
  AddTwo();
  candidates_[0].options.standard.storage = CacheStorage::kInt4;
  candidates_[0].is_approximate = true;
  SelectionRules rules{.objective = Objective::kLatency};
  EXPECT_EQ(Choose(rules, {64, 64}), Mechanism::kEfficient);
  rules.allow_approximate = true;
  EXPECT_EQ(Choose(rules, {64, 64}), Mechanism::kEfficient);  // unmeasured
  candidates_[0].perplexity_ratios = PerplexityRatios({{1, 1.01}});
  EXPECT_EQ(Choose(rules, {64, 64}), Mechanism::kStandard);
  candidates_.resize(1);
  rules.allow_approximate = false;
  EXPECT_EQ(Select(rules, {64, 64}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SelectionTest, EveryObjectiveRespectsTheFloorOfQualityAtTheRequestsLength) {
  AddTwo();
  candidates_[1].perplexity_ratios = PerplexityRatios({{512, 1.0}, {2048, 1.2}});
  for (const Objective objective :
       {Objective::kLatency, Objective::kMemory, Objective::kBalanced}) {
    SelectionRules rules{.objective = objective, .max_perplexity_ratio = 1.15};
    EXPECT_EQ(Choose(rules, {8000, 64}), Mechanism::kStandard);
    rules.max_perplexity_ratio = 1.2;
    EXPECT_EQ(Choose(rules, {8000, 64}), Mechanism::kEfficient);
  }
  // Halfway between the measured windows on a scale of logarithms.
  EXPECT_DOUBLE_EQ(*candidates_[1].perplexity_ratios.At(1024), 1.1);
  const SelectionRules memory{.objective = Objective::kMemory, .max_perplexity_ratio = 1.1};
  EXPECT_EQ(Choose(memory, {1020, 4}), Mechanism::kEfficient);
  EXPECT_EQ(Choose(memory, {1021, 4}), Mechanism::kStandard);
}

TEST_F(SelectionTest, UnmeasuredMechanismsNeverPassTheFloor) {
  AddTwo();
  candidates_[1].perplexity_ratios = {};
  const SelectionRules rules{.objective = Objective::kMemory, .max_perplexity_ratio = 1e6};
  EXPECT_EQ(Choose(rules, {4096, 64}), Mechanism::kStandard);
}

TEST_F(SelectionTest, RatesOfNearbyLengthsAreInterpolated) {
  AddTwo();
  SetRates(Mechanism::kEfficient, {{512, 1, 2}, {2048, 3, 4}});
  AttentionOptions efficient;
  efficient.mechanism = Mechanism::kEfficient;
  EXPECT_DOUBLE_EQ(profile_.RateOf(efficient, 1024).prefill, 2);
  EXPECT_DOUBLE_EQ(profile_.RateOf(efficient, 1024).decode, 3);
  EXPECT_DOUBLE_EQ(profile_.RateOf(efficient, 64).decode, 2);
  EXPECT_DOUBLE_EQ(profile_.RateOf(efficient, 9999).decode, 4);
}

TEST_F(SelectionTest, RowsThatAreMultipliedTogetherShareTheReadingOfWeights) {
  AddTwo();
  profile_.linear = {{1, 10}, {4, 40}, {512, 80}};
  EXPECT_DOUBLE_EQ(profile_.LinearRateOf(2), 25);
  EXPECT_DOUBLE_EQ(profile_.LinearRateOf(1000), 80);
  candidates_[0].projection_work = 1000;
  const double attention = 100 * 2.0;  // two tokens at a depth of 100 or so
  EXPECT_NEAR(PredictSeconds(candidates_[0], profile_, {0, 2}), 2 * 1000 / 10.0, 10);
  EXPECT_NEAR(PredictSeconds(candidates_[0], profile_, {100, 2, 1}),
              100 * 1000 / profile_.LinearRateOf(100) + 5000 + 2 * 1000 / 10.0 + attention, 10);
  // Four choices take four times as long in attention, and no longer in linear maps.
  EXPECT_NEAR(PredictSeconds(candidates_[0], profile_, {100, 2, 4}),
              100 * 1000 / profile_.LinearRateOf(100) + 5000 + 2 * 1000 / 10.0 + 4 * attention, 30);
}

TEST_F(SelectionTest, ChoicesMoveTheCrossoverTowardsCheapAttention) {
  AddTwo();
  profile_.linear = {{1, 1}, {8, 8}};
  candidates_[0].projection_work = 3000;  // attention of 1,000 tokens costs as much as efficient's
  candidates_[1].projection_work = 4000;
  const SelectionRules rules{.objective = Objective::kLatency};
  EXPECT_EQ(Choose(rules, {1500, 1000, 1}), Mechanism::kStandard);
  EXPECT_EQ(Choose(rules, {1500, 1000, 8}), Mechanism::kEfficient);
}

TEST_F(SelectionTest, ChoicesShareWholePagesButNoState) {
  AddTwo();
  Add(Mechanism::kTaylorShift, {.bytes_per_token = 0, .fixed_bytes = 2000}, {{1, 1.0}});
  candidates_[2].is_approximate = false;
  const RequestLengths alone{1000, 24}, eight{1000, 24, 8};
  EXPECT_EQ(PredictBytes(candidates_[0], alone), 8 * 1024);
  EXPECT_EQ(PredictBytes(candidates_[0], eight), 8 * 960 + 8 * 8 * (40 + 24));
  EXPECT_EQ(PredictBytes(candidates_[0], {63, 1, 8}), 8 * 8 * 64);
  EXPECT_EQ(PredictBytes(candidates_[2], eight), 8 * 2000);
  const SelectionRules rules{.objective = Objective::kMemory};
  EXPECT_EQ(Choose(rules, alone), Mechanism::kTaylorShift);
  EXPECT_EQ(Choose(rules, eight), Mechanism::kEfficient);
}

TEST_F(SelectionTest, OptionsWithoutRatesTakeThoseOfTheirMechanism) {
  AttentionOptions atp;
  atp.mechanism = Mechanism::kAtp;
  profile_.rates["atp rank 7"] = {{1, 5, 6}};
  EXPECT_EQ(profile_.RateOf(atp, 100).decode, 6);
  profile_.rates[AttentionLabel(atp)] = {{1, 7, 8}};
  EXPECT_EQ(profile_.RateOf(atp, 100).decode, 8);
  EXPECT_EQ(profile_.RateOf({}, 100).decode, AttentionRate().decode);
}

TEST_F(SelectionTest, OnlyAllowedMechanismsThatAreLongEnoughAreTaken) {
  AddTwo();
  Add(Mechanism::kSuper, {.work_per_pair = 0, .bytes_per_token = 0, .max_tokens = 100}, {{1, 1.0}});
  SelectionRules rules{.objective = Objective::kLatency};
  EXPECT_EQ(Choose(rules, {64, 36}), Mechanism::kSuper);
  EXPECT_EQ(Choose(rules, {64, 37}), Mechanism::kStandard);
  rules.allowed = {Mechanism::kEfficient};
  EXPECT_EQ(Choose(rules, {64, 36}), Mechanism::kEfficient);
  rules.allowed = {Mechanism::kSuper};
  EXPECT_EQ(Select(rules, {64, 37}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SelectionTest, TheReasonNamesEveryBid) {
  AddTwo();
  profile_.name = "here.json";
  const auto selection = Select({.objective = Objective::kLatency}, {64, 0});
  ASSERT_TRUE(selection.ok());
  EXPECT_THAT(selection->reason,
              HasSubstr("auto, latency, profile here.json: standard 2.05e+03 s"));
  EXPECT_THAT(selection->reason, HasSubstr("perplexity x 1.000 (taken); efficient"));
}

TEST(ParseObjective, KnowsItsNames) {
  for (Objective o : {Objective::kLatency, Objective::kMemory, Objective::kBalanced}) {
    EXPECT_EQ(*ParseName<Objective>(NameOf(o)), o);
  }
  EXPECT_EQ(ParseName<Objective>("speed").status(),
            absl::InvalidArgumentError(
                "unknown objective \"speed\", expected latency, memory or balanced"));
}

TEST_F(SelectionTest, CostsAgreeWithWhatSelectionPredictsAndTakes) {
  AddTwo();
  Add(Mechanism::kAtp, {.work_per_pair = 0, .work_per_token = 1, .bytes_per_token = 1}, {{1, 1.2}});
  profile_.name = "measured";
  const CostQuery query = {.lengths = {64, 2048, 8192}, .n_new_tokens = 64};
  const CostTable table = PredictCosts(candidates_, profile_, query, 2.0, 8192);
  EXPECT_EQ(table.profile, "measured");
  ASSERT_EQ(table.mechanisms.size(), 3u);
  const MechanismCosts& standard = table.mechanisms[0];
  ASSERT_EQ(standard.points.size(), 2u);  // 8,192 tokens leave no room for new ones
  const CostPoint& point = standard.points[1];
  EXPECT_EQ(point.n_tokens, 2048);
  EXPECT_DOUBLE_EQ(point.request_seconds, PredictSeconds(candidates_[0], profile_, {2048, 64}));
  EXPECT_DOUBLE_EQ(point.prefill_seconds, PredictSeconds(candidates_[0], profile_, {2048, 0}));
  EXPECT_DOUBLE_EQ(point.decode_seconds, candidates_[0].mechanism->Work({}, 2048).decode);
  EXPECT_EQ(point.cache_bytes, 8 * (2048 + 64));
  EXPECT_TRUE(table.mechanisms[2].is_approximate);
  ASSERT_EQ(table.selections.size(), 6u);
  for (const SelectionByLength& by_length : table.selections) {
    const auto selection = Select(by_length.rules, {64, 64});
    ASSERT_TRUE(selection.ok());
    EXPECT_EQ(by_length.first, selection->options.mechanism);
    ASSERT_EQ(by_length.crossovers.size(), selection->crossovers.size());
    for (size_t i = 0; i < selection->crossovers.size(); ++i) {
      EXPECT_EQ(by_length.crossovers[i].tokens, selection->crossovers[i].tokens);
      EXPECT_EQ(by_length.crossovers[i].to, selection->crossovers[i].to);
    }
  }
}

TEST_F(SelectionTest, CostsSayWhereNoMechanismIsAllowed) {
  Add(Mechanism::kEfficient, {.work_per_token = 1, .bytes_per_token = 1}, {{1, 1.5}});
  const CostTable table = PredictCosts(candidates_, profile_, {.lengths = {64}}, 1.1, 8192);
  EXPECT_EQ(table.selections[0].first, std::nullopt);
  EXPECT_EQ(table.mechanisms[0].points.size(), 1u);
}

}  // namespace
}  // namespace lowkey

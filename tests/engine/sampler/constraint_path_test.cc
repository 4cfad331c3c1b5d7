#include "engine/sampler/constraint_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "absl/synchronization/notification.h"
#include "tests/engine/sampler/form.h"

namespace lowkey {
namespace {

// Holds the worker until it is opened.
class Gate : public MaskWorker::Task {
 public:
  explicit Gate(MaskWorker& worker) : worker_(worker) { worker_.Add(this); }
  ~Gate() override {
    if (!open_.HasBeenNotified()) Open();
  }
  void Open() {
    open_.Notify();
    worker_.Join(this);
  }

 private:
  void Run() override { open_.WaitForNotification(); }

  MaskWorker& worker_;
  absl::Notification open_;
};

std::vector<int32_t> TokensOf(absl::Span<const uint64_t> words) {
  std::vector<int32_t> tokens;
  for (size_t t = 0; t < 64 * words.size(); ++t) {
    if ((words[t / 64] >> (t % 64) & 1) != 0) tokens.push_back(static_cast<int32_t>(t));
  }
  return tokens;
}

void ExpectSameMask(ConstraintPath& path, Form& plain) {
  const auto mask = path.Mask(), expected = plain.Mask();
  ASSERT_TRUE(mask.ok()) << mask.status();
  EXPECT_EQ(TokensOf(*mask), TokensOf(*expected));
}

TEST(ConstraintPathTest, MasksAreThoseOfTheConstraintWhateverWasDrafted) {
  MaskWorker worker;
  const Form::Rules rules;
  for (int walk = 0; walk < 20; ++walk) {
    ConstraintPath path(std::make_unique<Form>(rules));
    Form plain(rules);
    for (int step = 0; step < 60; ++step) {
      // None, the right ones, or right ones before a wrong one or one that may not come.
      std::vector<int32_t> drafts = plain.ForcedTokens((step + walk) % 6);
      if (walk % 3 == 1) drafts.push_back(step % rules.vocab_size);
      if (walk % 3 == 2) drafts.insert(drafts.begin(), {3, 6, 9});
      if (step % 5 != 0) path.Begin(worker, drafts);
      for (int i = 0; i <= step % 4; ++i) {
        ExpectSameMask(path, plain);
        const std::vector<int32_t> allowed = TokensOf(*plain.Mask());
        const int32_t token = allowed[static_cast<size_t>(step * 7 + i) % allowed.size()];
        ASSERT_TRUE(path.Advance(token).ok());
        ASSERT_TRUE(plain.Advance(token).ok());
      }
    }
  }
}

TEST(ConstraintPathTest, MasksAlongRightDraftsAreComputedAhead) {
  int n_computed = 0;
  Form::Rules rules{.n_field = 1, .n_text = 4};
  absl::Notification done;
  rules.on_mask = [&] {
    if (++n_computed == 5) done.Notify();
  };
  MaskWorker worker;
  ConstraintPath path(std::make_unique<Form>(rules));
  ASSERT_TRUE(path.Advance(0).ok());
  const std::vector<int32_t> drafts = path.constraint().ForcedTokens(8);
  ASSERT_EQ(drafts.size(), 4u);
  path.Begin(worker, drafts);
  done.WaitForNotification();
  for (const int32_t token : drafts) {
    ASSERT_TRUE(path.Mask().ok());
    ASSERT_TRUE(path.Advance(token).ok());
  }
  ASSERT_TRUE(path.Mask().ok());
  EXPECT_EQ(n_computed, 5);
  const MaskCounts counts = path.TakeCounts();
  EXPECT_EQ(counts.n_masks, 5);
  EXPECT_EQ(counts.n_ahead, 5);
  EXPECT_EQ(path.TakeCounts().n_masks, 0);
}

TEST(ConstraintPathTest, AMaskThatTheWorkerHasNotBegunIsComputedWhereItIsNeeded) {
  MaskWorker worker;
  ConstraintPath path(std::make_unique<Form>(Form::Rules{}));
  Gate gate(worker);
  path.Begin(worker, {});
  ASSERT_TRUE(path.Mask().ok());  // would wait forever for the worker
  EXPECT_EQ(path.TakeCounts().n_ahead, 0);
}

// A form whose masks take 100 units, and which says of which drafts the masks were computed.
class DearForm : public Form {
 public:
  using Form::Form;
  MaskProgress Prepare(int64_t most_work) override {
    const int64_t n = std::clamp<int64_t>(100 - n_done_, 0, std::max<int64_t>(0, most_work));
    n_done_ += n;
    return {.is_ready = n_done_ == 100, .n_work = n};
  }
  absl::Status Advance(int32_t token) override {
    n_done_ = 0;
    return Form::Advance(token);
  }
  std::unique_ptr<TokenConstraint> Copy() const override {
    return std::make_unique<DearForm>(*this);
  }

 private:
  int64_t n_done_ = 0;
};

TEST(ConstraintPathTest, TheWorkerStopsWhereTheBudgetIsSpent) {
  int n_computed = 0;
  Form::Rules rules{.n_field = 1, .n_text = 4};
  rules.on_mask = [&] { ++n_computed; };
  MaskBudget budget(250);
  (void)budget.Prepare({}, [](size_t, int64_t) { return MaskProgress(); });
  MaskWorker worker;
  ConstraintPath path(std::make_unique<DearForm>(rules));
  ASSERT_TRUE(path.Advance(0).ok());
  path.Begin(worker, path.constraint().ForcedTokens(4), &budget);
  absl::Notification done;
  class Last : public MaskWorker::Task {
   public:
    explicit Last(absl::Notification& done) : done_(done) {}

   private:
    void Run() override { done_.Notify(); }
    absl::Notification& done_;
  } last(done);
  worker.Add(&last);  // runs after the path's task
  done.WaitForNotification();
  worker.Join(&last);
  EXPECT_EQ(budget.left(), 0);
  EXPECT_EQ(n_computed, 2);
  // The third mask goes on where the worker stopped.
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(path.Prepare(0).is_ready);
    ASSERT_TRUE(path.Mask().ok());
    ASSERT_TRUE(path.Advance(Form::Usual(rules, 1 + i)).ok());
  }
  EXPECT_FALSE(path.Prepare(0).is_ready);
  EXPECT_FALSE(path.Prepare(20).is_ready);
  const MaskProgress progress = path.Prepare(1000);
  EXPECT_TRUE(progress.is_ready);
  EXPECT_EQ(progress.n_work, 30);
}

TEST(ConstraintPathTest, ARefusedTokenChangesNothing) {
  MaskWorker worker;
  const Form::Rules rules{.n_field = 1};
  ConstraintPath path(std::make_unique<Form>(rules));
  Form plain(rules);
  path.Begin(worker, {0, 26});
  EXPECT_EQ(path.Advance(1).code(), absl::StatusCode::kInvalidArgument);
  ExpectSameMask(path, plain);
  ASSERT_TRUE(path.Advance(0).ok());
  ASSERT_TRUE(plain.Advance(0).ok());
  ExpectSameMask(path, plain);
}

TEST(ConstraintPathTest, AnErrorComesWhereTheMaskIsNeeded) {
  MaskWorker worker;
  ConstraintPath path(std::make_unique<Form>(Form::Rules{.n_before_end = 2}));
  path.Begin(worker, {0, 3});
  for (const int32_t token : {0, 3}) {
    EXPECT_TRUE(path.Mask().ok());
    EXPECT_TRUE(path.Advance(token).ok());
  }
  path.Begin(worker, {});
  EXPECT_EQ(path.Mask().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ConstraintPathTest, WhatTheWorkerThrowsIsThrownWhereTheMaskIsNeeded) {
  Form::Rules rules;
  rules.on_mask = [] { throw std::runtime_error("no mask"); };
  MaskWorker worker;
  ConstraintPath path(std::make_unique<Form>(rules));
  path.Begin(worker, {});
  EXPECT_THROW((void)path.Mask(), std::runtime_error);
}

TEST(ConstraintPathTest, MayEndWhileItsMasksAreQueuedOrComputed) {
  MaskWorker worker;
  {
    Gate gate(worker);
    ConstraintPath path(std::make_unique<Form>(Form::Rules{}));
    path.Begin(worker, {0});
  }
  for (int i = 0; i < 200; ++i) {
    ConstraintPath path(std::make_unique<Form>(Form::Rules{.n_field = 1, .n_text = 20}));
    ASSERT_TRUE(path.Advance(0).ok());
    path.Begin(worker, path.constraint().ForcedTokens(20));
    if (i % 2 == 0) (void)path.Mask();
  }
}

}  // namespace
}  // namespace lowkey

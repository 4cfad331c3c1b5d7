// Drafts: rows beside a decode row that may turn out not to count.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;

struct Asked {
  uint64_t id = 0;
  int32_t choice = 0;
  int64_t most = 0;
  bool operator==(const Asked& other) const = default;
};

class SchedulerDraftTest : public ::testing::Test {
 protected:
  // A scheduler whose choices draft `n_drafts` tokens each where they may.
  Scheduler Make(Scheduler::Options options, int64_t n_drafts) {
    options.drafts = [this, n_drafts](uint64_t id, int32_t choice, int64_t most) {
      asked_.push_back({id, choice, most});
      return std::min(n_drafts, most);
    };
    return Scheduler(std::move(options));
  }

  static SchedulerRequest Request(uint64_t id, int64_t n_prompt_tokens, int64_t max_new_tokens,
                                  int32_t n_choices = 1) {
    SchedulerRequest r;
    r.id = id;
    r.n_prompt_tokens = n_prompt_tokens;
    r.max_new_tokens = max_new_tokens;
    r.n_choices = n_choices;
    r.bytes = [](int64_t n) { return n; };
    return r;
  }

  static std::vector<ScheduledRows> Step(Scheduler& s) {
    const ScheduledBatch batch = s.NextBatch();
    s.Commit(batch);
    return batch.rows;
  }

  // (rows, drafts) of each entry.
  static std::vector<std::pair<int64_t, int64_t>> Counts(const std::vector<ScheduledRows>& rows) {
    std::vector<std::pair<int64_t, int64_t>> counts;
    for (const ScheduledRows& r : rows) counts.emplace_back(r.n_rows, r.n_drafts);
    return counts;
  }

  std::vector<Asked> asked_;
};

const Scheduler::Options kOptions{40, 8, 10000};

TEST_F(SchedulerDraftTest, PromptsHaveNoneAndDecodeRowsCountWhatIsAccepted) {
  Scheduler s = Make(kOptions, 3);
  ASSERT_TRUE(s.Enqueue(Request(1, 10, 100)).ok());
  EXPECT_THAT(Counts(Step(s)), ElementsAre(std::pair(10, 0)));
  EXPECT_TRUE(asked_.empty());
  std::vector<ScheduledRows> rows = Step(s);
  EXPECT_THAT(Counts(rows), ElementsAre(std::pair(4, 3)));
  EXPECT_EQ(rows[0].first_position, 10);
  EXPECT_TRUE(rows[0].samples);
  s.AcceptDraft(1, 0);
  s.AcceptDraft(1, 0);  // two of three
  rows = Step(s);
  EXPECT_EQ(rows[0].first_position, 13);
  EXPECT_EQ(Step(s)[0].first_position, 14) << "none of them";
}

TEST_F(SchedulerDraftTest, ADraftNeverPassesTheLimitOfTheAnswer) {
  Scheduler s = Make(kOptions, 10);
  ASSERT_TRUE(s.Enqueue(Request(1, 10, 5)).ok());
  Step(s);
  // Of five tokens one is known: the row and three drafts give the other four.
  EXPECT_THAT(Counts(Step(s)), ElementsAre(std::pair(4, 3)));
  for (int i = 0; i < 3; ++i) s.AcceptDraft(1, 0);
  EXPECT_TRUE(s.NextBatch().rows.empty());
}

TEST_F(SchedulerDraftTest, NobodyIsPreemptedForDrafts) {
  Scheduler::Options options = kOptions;
  options.cache_bytes = 160;
  Scheduler s = Make(options, 10);
  ASSERT_TRUE(s.Enqueue(Request(1, 10, 150)).ok());
  Step(s);
  int64_t n_known = 11;
  while (n_known < 160) {
    const std::vector<ScheduledRows> rows = Step(s);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_LE(rows[0].first_position + rows[0].n_rows, s.reserved_bytes());
    for (int64_t i = 0; i < rows[0].n_drafts; ++i) s.AcceptDraft(1, 0);
    n_known += rows[0].n_rows;
  }
  EXPECT_EQ(s.n_preemptions(), 0);
}

TEST_F(SchedulerDraftTest, DraftsShareTheStepInOrderOfAdmissionBeforePrompts) {
  Scheduler::Options options = kOptions;
  options.max_drafted_rows = 8;
  Scheduler s = Make(options, 4);
  ASSERT_TRUE(s.Enqueue(Request(1, 4, 100, 2)).ok());
  ASSERT_TRUE(s.Enqueue(Request(2, 4, 100)).ok());
  Step(s);
  ASSERT_TRUE(s.Enqueue(Request(3, 100, 100)).ok());
  // Three decode rows leave five for drafts, and prompts get what is left of the step.
  const std::vector<ScheduledRows> rows = s.NextBatch(20).rows;
  EXPECT_THAT(Counts(rows),
              ElementsAre(std::pair(5, 4), std::pair(2, 1), std::pair(1, 0), std::pair(16, 0)));
  EXPECT_THAT(asked_, ElementsAre(Asked{1, 0, 5}, Asked{1, 1, 1}));
}

TEST_F(SchedulerDraftTest, PromptsKeepTheirLeastShareOfASmallStep) {
  Scheduler::Options options = kOptions;
  options.max_batch_tokens = 20;
  Scheduler s = Make(options, 10);
  ASSERT_TRUE(s.Enqueue(Request(1, 4, 100, 2)).ok());
  Step(s);
  EXPECT_THAT(Counts(s.NextBatch(20).rows), ElementsAre(std::pair(11, 10), std::pair(9, 8)));
  ASSERT_TRUE(s.Enqueue(Request(2, 100, 100)).ok());
  EXPECT_THAT(Counts(s.NextBatch(20).rows),
              ElementsAre(std::pair(3, 2), std::pair(1, 0), std::pair(16, 0)));
}

TEST_F(SchedulerDraftTest, AFinishedOrPausedChoiceHasNone) {
  Scheduler s = Make(kOptions, 2);
  ASSERT_TRUE(s.Enqueue(Request(1, 4, 100, 2)).ok());
  Step(s);
  s.FinishChoice(1, 0);
  EXPECT_THAT(Counts(Step(s)), ElementsAre(std::pair(3, 2)));
  s.SetPaused(1, true);
  s.AcceptDraft(1, 1);  // of the step that had begun
  EXPECT_TRUE(Step(s).empty());
  s.SetPaused(1, false);
  EXPECT_EQ(Step(s)[0].first_position, 6);
}

}  // namespace
}  // namespace lowkey

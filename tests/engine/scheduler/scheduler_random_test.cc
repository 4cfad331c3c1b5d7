// Random operations against a specification: every promise of scheduler.h, checked at each step
// from outside, with plain maps and no code of the scheduler's.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "engine/scheduler/scheduler.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

struct Spec {
  SchedulerRequest request;
  bool admitted = false;
  int64_t n_prompt_computed = 0;
  std::map<int32_t, int64_t> next_position;  // of choices that decode
};

class Model {
 public:
  Model(const Scheduler::Options& options, uint32_t seed)
      : options_(options), scheduler_(options), rng_(seed) {}

  void RunOperation() {
    const int64_t kind = Draw(0, 9);
    if (kind <= 2) {
      Enqueue();
    } else if (kind <= 7) {
      RunStep();
    } else if (kind == 8) {
      FinishSomeChoice();
    } else {
      RemoveSome();
    }
    CheckTotals();
  }

  // Ends everything that decodes until nothing is left; false when that does not happen.
  bool Drain() {
    for (int64_t i = 0; i < 100000 && !specs_.empty(); ++i) {
      RunStep();
      FinishSomeChoice();
      if (testing::Test::HasFailure()) return false;
    }
    return specs_.empty();
  }

  int64_t n_rows_computed() const { return n_rows_computed_; }

 private:
  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }

  Spec* Find(uint64_t id) {
    const auto it = std::find_if(specs_.begin(), specs_.end(),
                                 [id](const Spec& s) { return s.request.id == id; });
    return it == specs_.end() ? nullptr : &*it;
  }

  int64_t CountWaiting() const {
    return std::count_if(specs_.begin(), specs_.end(), [](const Spec& s) { return !s.admitted; });
  }

  int64_t RunningChoices() const {
    int64_t n = 0;
    for (const Spec& s : specs_) {
      if (!s.admitted) continue;
      const bool decodes = s.n_prompt_computed == s.request.n_prompt_tokens;
      n += decodes ? static_cast<int64_t>(s.next_position.size()) : s.request.n_choices;
    }
    return n;
  }

  int64_t ReservedBytes() const {
    int64_t n = 0;
    for (const Spec& s : specs_) n += s.admitted ? s.request.reserved_bytes : 0;
    return n;
  }

  void Enqueue() {
    const SchedulerRequest r{next_id_++, Draw(1, 60), static_cast<int32_t>(Draw(1, 5)),
                             Draw(0, 110)};
    const absl::Status status = scheduler_.Enqueue(r);
    if (r.reserved_bytes > options_.cache_bytes || r.n_choices > options_.max_running_seqs) {
      ASSERT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    } else if (CountWaiting() >= options_.max_waiting_requests) {
      ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    } else {
      ASSERT_TRUE(status.ok()) << status;
      specs_.push_back({r, false, 0, {}});
    }
  }

  // First come, first served: the specification admits from the front while both limits hold.
  void Admit() {
    for (Spec& s : specs_) {
      if (s.admitted) continue;
      if (RunningChoices() + s.request.n_choices > options_.max_running_seqs) return;
      if (ReservedBytes() + s.request.reserved_bytes > options_.cache_bytes) return;
      s.admitted = true;
    }
  }

  void RunStep() {
    Admit();
    const std::vector<ScheduledRows> batch = scheduler_.NextBatch();
    CheckBatch(batch);
    if (testing::Test::HasFailure()) return;
    if (Draw(0, 9) == 0) return;  // the step did not run: nothing was computed
    if (Draw(0, 19) == 0) RemoveSome();
    scheduler_.Commit(batch);
    CommitToSpec(batch);
  }

  void CheckBatch(const std::vector<ScheduledRows>& batch) {
    int64_t n_rows = 0;
    bool prompts_began = false;
    std::set<std::pair<uint64_t, int32_t>> seen;
    for (const ScheduledRows& rows : batch) {
      const Spec* s = Find(rows.request);
      ASSERT_NE(s, nullptr);
      ASSERT_TRUE(s->admitted) << "request " << rows.request << " was passed over";
      ASSERT_TRUE(seen.insert({rows.request, rows.choice}).second);
      ASSERT_GE(rows.n_rows, 1);
      n_rows += rows.n_rows;
      const bool decodes = s->n_prompt_computed == s->request.n_prompt_tokens;
      if (decodes) {
        ASSERT_FALSE(prompts_began) << "a decode row after a prompt chunk";
        ASSERT_EQ(s->next_position.count(rows.choice), 1u) << "row of a finished choice";
        ASSERT_EQ(rows.first_position, s->next_position.at(rows.choice));
        ASSERT_EQ(rows.n_rows, 1);
        ASSERT_TRUE(rows.samples);
      } else {
        prompts_began = true;
        ASSERT_EQ(rows.choice, 0);
        ASSERT_EQ(rows.first_position, s->n_prompt_computed);
        const int64_t end = rows.first_position + rows.n_rows;
        ASSERT_LE(end, s->request.n_prompt_tokens);
        ASSERT_EQ(rows.samples, end == s->request.n_prompt_tokens);
      }
    }
    ASSERT_LE(n_rows, options_.max_batch_tokens);
    CheckNobodyIsForgotten(seen, n_rows);
  }

  // All decode rows are in; prompts wait only when the budget is spent, in order of arrival.
  void CheckNobodyIsForgotten(const std::set<std::pair<uint64_t, int32_t>>& seen, int64_t n_rows) {
    bool prompt_left_out = false;
    for (const Spec& s : specs_) {
      if (!s.admitted) continue;
      if (s.n_prompt_computed == s.request.n_prompt_tokens) {
        for (const auto& [choice, position] : s.next_position) {
          ASSERT_EQ(seen.count({s.request.id, choice}), 1u);
        }
      } else if (seen.count({s.request.id, 0}) == 0) {
        ASSERT_EQ(n_rows, options_.max_batch_tokens);
        prompt_left_out = true;
      } else {
        ASSERT_FALSE(prompt_left_out) << "a later prompt went first";
      }
    }
  }

  void CommitToSpec(const std::vector<ScheduledRows>& batch) {
    for (const ScheduledRows& rows : batch) {
      Spec* s = Find(rows.request);
      if (s == nullptr) continue;
      n_rows_computed_ += rows.n_rows;
      if (s->n_prompt_computed < s->request.n_prompt_tokens) {
        s->n_prompt_computed += rows.n_rows;
        if (s->n_prompt_computed < s->request.n_prompt_tokens) continue;
        for (int32_t c = 0; c < s->request.n_choices; ++c) {
          s->next_position[c] = s->request.n_prompt_tokens;
        }
      } else {
        ++s->next_position.at(rows.choice);
      }
    }
  }

  void FinishSomeChoice() {
    std::vector<std::pair<uint64_t, int32_t>> decoding;
    for (const Spec& s : specs_) {
      for (const auto& [choice, position] : s.next_position) {
        decoding.push_back({s.request.id, choice});
      }
    }
    if (decoding.empty()) return;
    const auto [id, choice] = decoding[Draw(0, static_cast<int64_t>(decoding.size()) - 1)];
    scheduler_.FinishChoice(id, choice);
    Spec* s = Find(id);
    s->next_position.erase(choice);
    if (s->next_position.empty()) Remove(id);
  }

  void RemoveSome() {
    if (specs_.empty()) return;
    Remove(specs_[Draw(0, static_cast<int64_t>(specs_.size()) - 1)].request.id);
  }

  void Remove(uint64_t id) {
    scheduler_.Remove(id);
    specs_.erase(std::find_if(specs_.begin(), specs_.end(),
                              [id](const Spec& s) { return s.request.id == id; }));
  }

  void CheckTotals() const {
    ASSERT_EQ(scheduler_.n_waiting(), CountWaiting());
    ASSERT_EQ(scheduler_.n_running(), static_cast<int64_t>(specs_.size()) - CountWaiting());
    ASSERT_EQ(scheduler_.reserved_bytes(), ReservedBytes());
    ASSERT_LE(scheduler_.reserved_bytes(), options_.cache_bytes);
    ASSERT_LE(RunningChoices(), options_.max_running_seqs);
  }

  const Scheduler::Options options_;
  Scheduler scheduler_;
  std::mt19937 rng_;
  std::vector<Spec> specs_;  // in order of arrival
  uint64_t next_id_ = 1;
  int64_t n_rows_computed_ = 0;
};

TEST(SchedulerAgainstItsSpecification, HoldsOverRandomOperations) {
  const Scheduler::Options settings[] = {
      {16, 4, 100, 6}, {4, 4, 300, 3}, {64, 16, 1000, 20}, {7, 3, 100, 2}, {1, 1, 100, 4}};
  for (const Scheduler::Options& options : settings) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(testing::Message() << options.max_batch_tokens << " rows, seed " << seed);
      Model model(options, seed);
      for (int i = 0; i < 10000; ++i) {
        model.RunOperation();
        if (HasFailure()) return;
      }
      EXPECT_TRUE(model.Drain()) << "somebody starves";
      EXPECT_GT(model.n_rows_computed(), 1000);
    }
  }
}

}  // namespace
}  // namespace lowkey

// A million random operations against a specification: every promise of scheduler.h, checked at
// each step from outside, with plain maps and no code of the scheduler's.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

// A live request as the specification knows it.
struct Spec {
  SchedulerRequest request;
  int64_t place = 0;  // in its tenant's line
  bool is_admitted = false, is_paused = false;
  bool is_parked = false;      // out of the queue: waits for nobody
  bool was_prefilled = false;  // once
  int64_t n_prompt_computed = 0;
  struct Choice {
    int64_t n_computed = 0, n_known = 0;
  };
  std::map<int32_t, Choice> choices;  // that are not finished, once the prompt was prefilled

  bool is_decoding() const { return n_prompt_computed == request.n_prompt_tokens; }
  int64_t n_places() const {
    return was_prefilled ? static_cast<int64_t>(choices.size()) : request.n_choices;
  }
  int64_t n_rows() const {
    int64_t n = n_prompt_computed;
    for (const auto& [c, choice] : choices) n = std::max(n, choice.n_computed);
    return n;
  }
};

class Model {
 public:
  Model(Scheduler::Options options, uint32_t seed)
      : options_(Watched(std::move(options))), scheduler_(options_), rng_(seed) {}

  void RunOperation() {
    const int64_t kind = Draw(0, 19);
    if (kind <= 5) {
      Enqueue();
    } else if (kind <= 13) {
      RunStep();
    } else if (kind <= 16) {
      FinishSomeChoice();
    } else if (kind == 17) {
      RemoveSome();
    } else {
      PauseOrResumeSome();
    }
    CheckTotals();
  }

  // Ends everything until nothing is left; false when that does not happen.
  bool Drain() {
    for (auto& [id, s] : specs_) SetPaused(s, false);
    for (int64_t i = 0; i < 100000 && !specs_.empty(); ++i) {
      RunStep();
      FinishSomeChoice();
      if (testing::Test::HasFailure()) return false;
    }
    return specs_.empty();
  }

  int64_t n_rows_computed() const { return n_rows_computed_; }
  int64_t n_preempted() const { return n_preempted_; }

 private:
  int64_t Draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(rng_);
  }

  Scheduler::Options Watched(Scheduler::Options options) {
    options.cached_rows = [this](uint64_t id) { return Admit(id); };
    options.drafts = [this](uint64_t id, int32_t choice, int64_t most) {
      EXPECT_TRUE(most >= 1 && most <= options_.max_drafted_rows) << most;
      EXPECT_EQ(specs_.at(id).choices.count(choice), 1u);
      return Draw(0, most);
    };
    return options;
  }

  Spec* Find(uint64_t id) {
    const auto it = specs_.find(id);
    return it == specs_.end() ? nullptr : &it->second;
  }

  void Enqueue() {
    constexpr const char* kTenants[] = {"", "a", "b"};
    SchedulerRequest r;
    r.id = next_id_++;
    r.n_prompt_tokens = Draw(1, 60);
    r.n_choices = static_cast<int32_t>(Draw(1, 5));
    r.max_new_tokens = Draw(0, 200);
    const int64_t base = Draw(0, 30), per_token = Draw(0, 2);
    r.bytes = [base, per_token](int64_t n) { return base + per_token * (n / 8); };
    r.tenant = kTenants[Draw(0, 2)];
    r.weight = static_cast<double>(Draw(1, 3));
    r.priority = static_cast<int32_t>(Draw(-3, 3));
    const int64_t most = r.bytes(r.n_prompt_tokens + std::max<int64_t>(0, r.max_new_tokens - 1));
    int64_t n_prompt_tokens = r.n_prompt_tokens;
    for (const auto& [id, s] : specs_) n_prompt_tokens += Waits(s) ? s.request.n_prompt_tokens : 0;
    const absl::Status status = scheduler_.Enqueue(r);
    if (most > options_.cache_bytes) {
      ASSERT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    } else if (r.n_choices > options_.max_running_seqs) {
      ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    } else if (CountWaiting() >= options_.max_waiting_requests ||
               (CountWaiting() > 0 && n_prompt_tokens > options_.max_waiting_prompt_tokens)) {
      ASSERT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    } else {
      ASSERT_TRUE(status.ok()) << status;
      Spec& s = specs_[r.id];
      s.request = r;
      s.place = n_accepted_++ - FairQueue::kOvertakes * r.priority;
    }
  }

  static bool Waits(const Spec& s) { return !s.is_admitted && !s.is_parked; }

  // The scheduler admits: nobody of the tenant's line may be passed over. Some find a prefix.
  int64_t Admit(uint64_t id) {
    Spec& s = specs_.at(id);
    EXPECT_TRUE(Waits(s)) << "request " << id << " does not wait";
    for (const auto& [other_id, other] : specs_) {
      if (!Waits(other) || other.request.tenant != s.request.tenant) continue;
      EXPECT_GE(std::pair(other.place, other_id), std::pair(s.place, id)) << "passed over";
    }
    s.is_admitted = true;
    admitted_.push_back(id);
    s.n_prompt_computed = Draw(0, 3) == 0 ? Draw(0, s.request.n_prompt_tokens - 1) : 0;
    return s.n_prompt_computed;
  }

  void Preempt(uint64_t id) {
    Spec* s = Find(id);
    ASSERT_TRUE(s != nullptr && s->is_admitted) << "request " << id << " has nothing to give up";
    bool is_eldest = true;
    for (uint64_t other : admitted_) {
      if (other == id) break;
      is_eldest &= specs_.at(other).is_paused;
    }
    ASSERT_TRUE(s->is_paused || !is_eldest) << "the eldest gave way";
    GiveUp(*s);
  }

  void GiveUp(Spec& s) {
    s.is_admitted = false;
    s.is_parked = s.is_paused;
    s.n_prompt_computed = 0;
    for (auto& [c, choice] : s.choices) choice.n_computed = 0;
    std::erase(admitted_, s.request.id);
    ++n_preempted_;
  }

  // The step is lost: all of its requests begin once more.
  void LoseStep(const std::vector<ScheduledRows>& batch) {
    std::set<uint64_t> ids;
    for (const ScheduledRows& rows : batch) ids.insert(rows.request);
    for (uint64_t id : ids) {
      scheduler_.Preempt(id);
      GiveUp(specs_.at(id));
    }
  }

  void RunStep() {
    const int64_t n_mixed = Draw(1, options_.max_batch_tokens);
    ScheduledBatch batch = scheduler_.NextBatch(n_mixed);
    if (testing::Test::HasFailure()) return;
    // In the order in which it happened: whoever gave way may have been admitted by this very call.
    for (uint64_t id : batch.preempted) Preempt(id);
    if (testing::Test::HasFailure()) return;
    CheckBatch(batch.rows, n_mixed);
    if (testing::Test::HasFailure()) return;
    if (Draw(0, 9) == 0) return;  // the step did not run: nothing was computed
    if (Draw(0, 199) == 0) return LoseStep(batch.rows);
    if (!batch.rows.empty() && Draw(0, 19) == 0) {  // one of them alone
      const uint64_t alone = batch.rows.back().request;
      std::erase_if(batch.rows, [&](const auto& rows) { return rows.request != alone; });
    }
    if (Draw(0, 19) == 0) RemoveSome();
    scheduler_.Commit(batch);
    for (const ScheduledRows& rows : batch.rows) CommitToSpec(rows);
    CheckMemory();
  }

  void CheckBatch(const std::vector<ScheduledRows>& batch, int64_t n_mixed) {
    int64_t n_rows = 0, n_decode = 0, n_entries = 0;  // decode: with drafts
    std::set<std::pair<uint64_t, int32_t>> seen;
    for (const ScheduledRows& rows : batch) {
      const Spec* s = Find(rows.request);
      ASSERT_NE(s, nullptr);
      ASSERT_TRUE(s->is_admitted && !s->is_paused) << "request " << rows.request;
      ASSERT_TRUE(seen.insert({rows.request, rows.choice}).second);
      ASSERT_GE(rows.n_rows, 1);
      n_rows += rows.n_rows;
      const int64_t end = rows.first_position + rows.n_rows - rows.n_drafts;
      if (s->is_decoding()) {
        ASSERT_EQ(s->choices.count(rows.choice), 1u) << "row of a finished choice";
        const Spec::Choice& choice = s->choices.at(rows.choice);
        ASSERT_EQ(rows.first_position, choice.n_computed);
        ASSERT_LE(end, choice.n_known);
        ASSERT_EQ(rows.samples, end == choice.n_known);
        if (choice.n_known - choice.n_computed == 1) {
          ASSERT_EQ(n_decode, n_rows - rows.n_rows) << "a decode row after a chunk";
          n_decode += rows.n_rows;
          ++n_entries;
          const int64_t n_most = s->request.n_prompt_tokens + s->request.max_new_tokens;
          ASSERT_LT(end + rows.n_drafts, n_most) << "drafts pass the answer's limit";
        } else {
          ASSERT_EQ(rows.n_drafts, 0);
        }
      } else {
        ASSERT_EQ(rows.choice, 0);
        ASSERT_EQ(rows.n_drafts, 0);
        ASSERT_EQ(rows.first_position, s->n_prompt_computed);
        ASSERT_LE(end, s->request.n_prompt_tokens);
        ASSERT_EQ(rows.samples, end == s->request.n_prompt_tokens && !s->was_prefilled);
      }
    }
    ASSERT_LE(n_rows, options_.max_batch_tokens);
    ASSERT_LE(n_decode, std::max(n_entries, options_.max_drafted_rows));
    CheckMemory(batch);
    if (n_decode > 0) {
      ASSERT_LE(n_rows, n_decode + std::max(options_.min_prompt_rows, n_mixed - n_decode));
    }
    CheckNobodyIsForgotten(batch, seen);
  }

  // Who is admitted and has places gets rows, unless rows before it spent the budget; who has none
  // waits for places that are not free.
  void CheckNobodyIsForgotten(const std::vector<ScheduledRows>& batch,
                              const std::set<std::pair<uint64_t, int32_t>>& seen) {
    int64_t n_left_out = 0;
    for (uint64_t id : admitted_) {
      const Spec& s = specs_.at(id);
      if (s.is_paused || s.n_places() == 0) continue;
      const bool is_in =
          std::any_of(seen.begin(), seen.end(), [id](const auto& key) { return key.first == id; });
      n_left_out += is_in ? 0 : 1;
    }
    ASSERT_TRUE(n_left_out == 0 || !batch.empty()) << "nobody moves";
    if (!admitted_.empty() || specs_.empty()) return;
    for (const auto& [id, s] : specs_) ASSERT_FALSE(Waits(s)) << "an idle scheduler admits nobody";
  }

  void CommitToSpec(const ScheduledRows& rows) {
    Spec* s = Find(rows.request);
    if (s == nullptr) return;
    n_rows_computed_ += rows.n_rows;
    const int64_t n_prompt = s->request.n_prompt_tokens;
    if (rows.first_position < n_prompt) {
      s->n_prompt_computed += rows.n_rows;
      if (!s->is_decoding()) return;
      for (int32_t c = 0; c < s->request.n_choices && !s->was_prefilled; ++c) {
        s->choices[c] = {n_prompt, n_prompt + 1};
      }
      s->was_prefilled = true;
      for (auto& [c, choice] : s->choices) choice.n_computed = n_prompt;
    } else {
      Spec::Choice& choice = s->choices.at(rows.choice);
      choice.n_computed += rows.n_rows - rows.n_drafts;
      choice.n_known += rows.samples ? 1 : 0;
      for (int64_t i = Draw(0, rows.n_drafts); i > 0; --i) {
        scheduler_.AcceptDraft(rows.request, rows.choice);
        ++choice.n_computed;
        ++choice.n_known;
      }
    }
    // The longest answer ends, as in an engine.
    std::vector<int32_t> ended;
    for (const auto& [c, choice] : s->choices) {
      if (choice.n_known >= n_prompt + s->request.max_new_tokens) ended.push_back(c);
    }
    for (int32_t c : ended) {
      FinishChoice(rows.request, c);
      if (Find(rows.request) == nullptr) return;
    }
  }

  void FinishSomeChoice() {
    std::vector<std::pair<uint64_t, int32_t>> decoding;
    for (const auto& [id, s] : specs_) {
      if (!s.is_admitted || !s.is_decoding()) continue;
      for (const auto& [choice, position] : s.choices) decoding.push_back({id, choice});
    }
    if (decoding.empty()) return;
    const auto [id, choice] = decoding[Draw(0, static_cast<int64_t>(decoding.size()) - 1)];
    FinishChoice(id, choice);
  }

  void FinishChoice(uint64_t id, int32_t choice) {
    scheduler_.FinishChoice(id, choice);
    Spec& s = specs_.at(id);
    s.choices.erase(choice);
    if (s.choices.empty()) Remove(id);
  }

  uint64_t Some() {
    return std::next(specs_.begin(), Draw(0, static_cast<int64_t>(specs_.size()) - 1))->first;
  }

  void RemoveSome() {
    if (!specs_.empty()) Remove(Some());
  }

  void Remove(uint64_t id) {
    scheduler_.Remove(id);
    specs_.erase(id);
    std::erase(admitted_, id);
  }

  void PauseOrResumeSome() {
    if (specs_.empty()) return;
    Spec& s = specs_.at(Some());
    if (Waits(s) && Draw(0, 1) == 0) return Park(s);
    SetPaused(s, !s.is_paused && Draw(0, 1) == 0);
  }

  void Park(Spec& s) {
    scheduler_.Park(s.request.id);
    s.is_paused = s.is_parked = true;
  }

  void SetPaused(Spec& s, bool is_paused) {
    scheduler_.SetPaused(s.request.id, is_paused);
    if (Waits(s)) return;
    s.is_paused = is_paused;
    s.is_parked &= is_paused;
  }

  int64_t CountWaiting() const {
    return std::count_if(specs_.begin(), specs_.end(),
                         [](const auto& entry) { return Waits(entry.second); });
  }

  void CheckTotals() const {
    ASSERT_EQ(scheduler_.n_waiting(), CountWaiting());
    ASSERT_EQ(scheduler_.n_running(), static_cast<int64_t>(admitted_.size()));
    ASSERT_EQ(scheduler_.n_preemptions(), n_preempted_);
    ASSERT_LE(scheduler_.reserved_bytes(), options_.cache_bytes);
    ASSERT_TRUE(!admitted_.empty() || scheduler_.reserved_bytes() == 0);
  }

  // The bytes held fit what is reserved, also while the batch is computed.
  void CheckMemory(const std::vector<ScheduledRows>& batch = {}) const {
    std::map<uint64_t, int64_t> n_rows;
    for (uint64_t id : admitted_) n_rows[id] = specs_.at(id).n_rows();
    for (const ScheduledRows& rows : batch) {
      int64_t& n = n_rows[rows.request];
      n = std::max(n, rows.first_position + rows.n_rows);
    }
    int64_t n_bytes = 0;
    for (const auto& [id, n] : n_rows) n_bytes += specs_.at(id).request.bytes(n);
    ASSERT_LE(n_bytes, scheduler_.reserved_bytes());
  }

  const Scheduler::Options options_;
  Scheduler scheduler_;
  std::mt19937 rng_;
  std::map<uint64_t, Spec> specs_;  // in order of arrival
  std::vector<uint64_t> admitted_;  // in this order
  uint64_t next_id_ = 1;
  int64_t n_accepted_ = 0, n_rows_computed_ = 0, n_preempted_ = 0;
};

TEST(SchedulerAgainstItsSpecification, HoldsOverAMillionRandomOperations) {
  const Scheduler::Options settings[] = {
      {16, 4, 100, 6}, {5, 5, 300, 3}, {64, 16, 150, 20, 4, 300}, {7, 3, 80, 2}, {1, 1, 100, 4}};
  int64_t n_preempted = 0;
  for (const Scheduler::Options& options : settings) {
    for (uint32_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(testing::Message() << options.max_batch_tokens << " rows, seed " << seed);
      Model model(options, seed);
      for (int i = 0; i < 50'000; ++i) {
        model.RunOperation();
        if (HasFailure()) return;
      }
      EXPECT_TRUE(model.Drain()) << "somebody starves";
      EXPECT_GT(model.n_rows_computed(), 5000);
      n_preempted += model.n_preempted();
    }
  }
  EXPECT_GT(n_preempted, 1000);
}

}  // namespace
}  // namespace lowkey

#ifndef LOWKEY_ENGINE_SCHEDULER_SCHEDULER_H_
#define LOWKEY_ENGINE_SCHEDULER_SCHEDULER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "absl/status/status.h"

namespace lowkey {

// What the scheduler knows of a request. A request is prefilled once and then decoded as n_choices
// sequences.
struct SchedulerRequest {
  uint64_t id = 0;              // unique among live requests
  int64_t n_prompt_tokens = 0;  // >= 1
  int32_t n_choices = 1;        // >= 1
  int64_t reserved_bytes = 0;   // the most cache it can ever hold
};

// Rows of one sequence in a step: positions first_position .. first_position + n_rows - 1.
struct ScheduledRows {
  uint64_t request = 0;
  int32_t choice = 0;
  int64_t first_position = 0;
  int64_t n_rows = 0;
  // The step reaches the prompt's last token, or it is a decode row: its last row's logits give a
  // token.
  bool samples = false;
};

// Which rows are computed next: decode rows of all running sequences first, then prompt chunks in
// order of arrival, under a budget of rows, which is smaller while streams wait. A request is
// admitted, in order of arrival, when its reservation fits the cache and its choices fit the
// running set; once admitted it never waits for memory. A paused request keeps its reservation and
// leaves its places in the running set to others; once resumed it takes the next that are free.
// Plain data: no model, no clock, no threads.
class Scheduler {
 public:
  struct Options {
    int64_t max_batch_tokens = 512;  // rows in a step, >= max_running_seqs
    int64_t max_running_seqs = 64;
    int64_t cache_bytes = 0;
    int64_t max_waiting_requests = 256;
    // Prompt rows that a step has beside decode rows, if prompts wait, however small its budget.
    int64_t min_prompt_rows = 16;
  };

  explicit Scheduler(const Options& options) : options_(options) {}

  // RESOURCE_EXHAUSTED when the queue is full, OUT_OF_RANGE when the request can never be admitted.
  absl::Status Enqueue(const SchedulerRequest& request);

  // The next step's rows; empty when there is nothing to compute. With decode rows in it, prompt
  // chunks fill it up to max_mixed_rows, at most to max_batch_tokens. Every batch is followed by
  // Commit(batch) or, for a step that did not run, by nothing.
  std::vector<ScheduledRows> NextBatch(
      int64_t max_mixed_rows = std::numeric_limits<int64_t>::max());

  // The rows were computed. Requests whose prompt is complete now decode all their choices.
  void Commit(const std::vector<ScheduledRows>& batch);

  // The choice produces no more rows.
  void FinishChoice(uint64_t request, int32_t choice);
  // A paused request gets no rows. Ids that are not admitted are ignored.
  void SetPaused(uint64_t request, bool is_paused);
  // Forgets a request, waiting or running, and its reservation. Unknown ids are ignored.
  void Remove(uint64_t request);

  int64_t n_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t n_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t reserved_bytes() const { return reserved_bytes_; }

 private:
  struct Running {
    SchedulerRequest request;
    int64_t n_computed = 0;              // prompt rows
    std::vector<int64_t> next_position;  // by choice, once the prompt is complete
    std::vector<bool> finished;          // by choice
    bool is_paused = false;
    bool has_places = true;  // in the running set, for its unfinished choices
    bool prompt_complete() const { return n_computed >= request.n_prompt_tokens; }
    int64_t n_unfinished() const {
      return request.n_choices - std::count(finished.begin(), finished.end(), true);
    }
  };

  void AppendDecodeRows(int64_t* budget, std::vector<ScheduledRows>* batch) const;
  void AppendPromptChunks(int64_t* budget, std::vector<ScheduledRows>* batch) const;
  bool PlaceResumed();
  bool AdmitNext();
  Running* Find(uint64_t request);

  const Options options_;
  std::deque<SchedulerRequest> waiting_;  // in order of arrival
  std::vector<Running> running_;          // in order of admission
  int64_t running_choices_ = 0;
  int64_t reserved_bytes_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SCHEDULER_SCHEDULER_H_

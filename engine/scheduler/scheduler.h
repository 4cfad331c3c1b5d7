#ifndef LOWKEY_ENGINE_SCHEDULER_SCHEDULER_H_
#define LOWKEY_ENGINE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/scheduler/fair_queue.h"
#include "engine/scheduler/forecast.h"

namespace lowkey {

// A request as the scheduler knows it: prefilled once, then decoded as n_choices sequences.
struct SchedulerRequest {
  uint64_t id = 0;              // unique among live requests
  int64_t n_prompt_tokens = 0;  // >= 1
  int32_t n_choices = 1;        // >= 1
  int64_t max_new_tokens = 1;   // per choice, >= 0
  // The most cache, in bytes, that all its choices hold while none has more than n_tokens rows.
  // Never decreases with n_tokens.
  std::function<int64_t(int64_t n_tokens)> bytes;
  std::string tenant = {};
  double weight = 1;  // the tenant's, > 0
  int32_t priority = 0;
  // Positions, ascending: no step computes prompt rows on both sides of one.
  std::vector<int64_t> prompt_stops = {};
};

// Rows of one sequence in a step: positions first_position .. first_position + n_rows - 1. Rows of
// the prompt, which are choice 0's, never share an entry with rows after it.
struct ScheduledRows {
  uint64_t request = 0;
  int32_t choice = 0;
  int64_t first_position = 0;
  int64_t n_rows = 0;
  // Says whether the rows reach the last known token: the last row's logits give the next token.
  bool samples = false;
  // The last rows are drafts: guesses at the tokens after the last known one. Each counts only if
  // the rows before it give its token (Scheduler::AcceptDraft).
  int64_t n_drafts = 0;
};

struct ScheduledBatch {
  std::vector<ScheduledRows> rows;
  // Requests whose cache must be dropped before the rows are computed. They are admitted again
  // later, and all their rows are computed once more.
  std::vector<uint64_t> preempted;
};

// Decides which rows are computed next: decode rows of all running sequences first, then drafts and
// then prompt chunks, both in order of admission, under a budget of rows, which is smaller while
// streams wait. Drafts stay within what their request has reserved: nobody is preempted for them.
//
// Requests are admitted in FairQueue's order, without overtaking. A request is admitted when its
// choices fit the running set and its cache fits beside the reservations of the others: each
// reserves what it will probably need, judged by the share of max_new_tokens that earlier requests
// generated, and more as it grows past that. When the cache is full, paused requests and then the
// youngest give their cache up and wait, first in their tenant's line, so that the oldest always
// ends.
//
// A paused request keeps its cache while nobody lacks it, and leaves its places in the running set
// to others; once resumed it takes the next free ones. Plain data: no model, no clock, no threads.
class Scheduler {
 public:
  struct Options {
    int64_t max_batch_tokens = 512;  // rows in a step, >= max_running_seqs
    int64_t max_running_seqs = 64;
    int64_t cache_bytes = 0;
    int64_t max_waiting_requests = 256;
    // The fewest prompt rows that a step has beside decode rows if prompts wait.
    int64_t min_prompt_rows = 16;
    int64_t max_waiting_prompt_tokens = int64_t{1} << 20;
    // Returns how many rows of an admitted request's prompt the cache holds already: at most all
    // but the last. Null: none.
    std::function<int64_t(uint64_t id)> cached_rows = nullptr;
    // Returns how many drafts, at most `most`, follow the last known token of a choice that
    // decodes. Null: none.
    std::function<int64_t(uint64_t id, int32_t choice, int64_t most)> drafts = nullptr;
    // Drafts fill a step with decode rows up to this many rows.
    int64_t max_drafted_rows = 32;
  };

  explicit Scheduler(Options options) : options_(std::move(options)) {}

  // RESOURCE_EXHAUSTED when the queue is full, OUT_OF_RANGE when the request can never fit the
  // cache, INVALID_ARGUMENT when it has more choices than may run.
  absl::Status Enqueue(const SchedulerRequest& request);

  // Returns the next step; no rows when there is nothing to compute. Prompt chunks fill a step with
  // decode rows up to max_mixed_rows, at most to max_batch_tokens. The caller commits the batch
  // unless the step did not run. Rows that it takes out come again in a later batch.
  ScheduledBatch NextBatch(int64_t max_mixed_rows = std::numeric_limits<int64_t>::max());

  // Notes that the rows were computed and that every row that samples gives a token, which may
  // become known only after the next batch. A choice that has all of max_new_tokens then gets no
  // further rows; a choice that turns out to have finished may have had a row too many. Drafts do
  // not count yet.
  void Commit(const ScheduledBatch& batch);
  // Notes, before the next batch, that the committed batch's next draft of a choice was right: its
  // row counts, and gives a token.
  void AcceptDraft(uint64_t request, int32_t choice);

  // Ends a choice: it gets no more rows.
  void FinishChoice(uint64_t request, int32_t choice);
  // Preempts a running request; the caller drops its cache.
  void Preempt(uint64_t request);
  // Pauses or resumes a request: paused, it gets no rows. Ids that wait or are unknown are ignored.
  void SetPaused(uint64_t request, bool is_paused);
  // Takes a waiting request, whose prefix is being fetched, out of the queue until it is resumed.
  // It keeps its place. Other ids are ignored.
  void Park(uint64_t request);
  // Notes that the cache holds the first n_rows of a waiting request's prompt: forecasts leave them
  // out. Options::cached_rows says what the cache holds at the admission. Other ids are ignored.
  void NoteCachedRows(uint64_t request, int64_t n_rows);
  // Forgets a request, waiting or running, and its reservation. Unknown ids are ignored.
  void Remove(uint64_t request);

  // Forecasts when a request that came now would be served, at this cost of steps. The cache may
  // turn out to hold the first n_cached_rows of its prompt (WithCachedShare).
  Forecast Predict(const SchedulerRequest& request, int64_t n_cached_rows, const StepCost& cost,
                   int64_t max_mixed_rows) const;

  int64_t n_waiting() const { return queue_.size(); }
  // Returns whether as many requests wait as may.
  bool is_full() const { return n_waiting() >= options_.max_waiting_requests; }
  int64_t n_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t reserved_bytes() const { return reserved_bytes_; }
  int64_t n_preemptions() const { return n_preemptions_; }

 private:
  struct Sequence {
    int64_t n_computed = 0;
    int64_t n_known = 0;  // tokens of the prompt and sampled tokens
    bool is_finished = false;
  };
  // A request waits in the queue, runs, or is parked (preempted while it was paused, or Park): it
  // joins the queue when it is resumed.
  struct Entry {
    SchedulerRequest request;
    int64_t place = 0;                // in the queue
    std::vector<Sequence> sequences;  // choice 0 alone until the prompt was computed once
    int64_t reserved_bytes = 0;
    int64_t reserved_tokens = 0;
    enum class State { kQueued, kRunning, kParked } state = State::kQueued;
    bool is_paused = false;
    bool has_places = false;    // in the running set, for its unfinished choices
    int64_t n_cached_rows = 0;  // while it waits, for forecasts (NoteCachedRows)
    bool is_charged = false;    // its tenant has paid for the prompt's rows

    bool is_running() const { return state == State::kRunning; }
    // Returns whether choices compute rows of their own; before that, choice 0 computes the prompt.
    bool prompt_complete() const { return sequences[0].n_computed >= request.n_prompt_tokens; }
    int64_t n_unfinished() const;
    int64_t n_known() const;  // of the longest choice
    // Returns whether the choice may need further rows.
    bool goes_on(const Sequence& s) const {
      return !s.is_finished && s.n_known - request.n_prompt_tokens < request.max_new_tokens;
    }
  };

  int64_t FinalTokens(const SchedulerRequest& request) const;
  int64_t ProbableNewTokens(const SchedulerRequest& request) const;  // to make room for
  // Returns what forecasts count on: the limit of an answer says little about its length.
  int64_t ExpectedNewTokens(const SchedulerRequest& request) const;
  int64_t TokensToReserve(const Entry& entry) const;
  RemainingWork Remaining(const Entry& entry) const;
  void Reserve(Entry& entry, int64_t n_tokens);
  void GrowReservations(std::vector<uint64_t>* preempted);
  Entry* YoungestPaused() const;
  void Preempt(Entry& entry, std::vector<uint64_t>* preempted);
  bool PlaceResumed();
  bool AdmitNext(std::vector<uint64_t>* preempted);
  void StopRunning(Entry& entry);
  // Takes the request's old place in its tenant's line.
  void QueueAgain(Entry& entry);
  void Dequeue(const Entry& entry);
  void AppendDecodeRows(int64_t* budget, std::vector<ScheduledRows>* rows) const;
  void AppendDrafts(int64_t* budget, std::vector<ScheduledRows>* rows) const;
  static int64_t NextStop(const Entry& entry, int64_t n_computed, int64_t end);
  void AppendChunks(int64_t* budget, std::vector<ScheduledRows>* rows) const;
  Entry* Find(uint64_t request);

  const Options options_;
  FairQueue queue_;
  std::map<uint64_t, Entry> entries_;
  std::vector<Entry*> running_;  // in order of admission
  int64_t n_waiting_prompt_tokens_ = 0;
  int64_t running_choices_ = 0;
  int64_t reserved_bytes_ = 0;
  int64_t n_preemptions_ = 0;
  double used_share_ = 1;              // share of max_new_tokens that requests used lately
  std::optional<double> used_tokens_;  // that answers had lately
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SCHEDULER_SCHEDULER_H_

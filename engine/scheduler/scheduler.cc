#include "engine/scheduler/scheduler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {

absl::Status Scheduler::Enqueue(const SchedulerRequest& request) {
  if (request.reserved_bytes > options_.cache_bytes) {
    return absl::OutOfRangeError(absl::StrCat("request needs ", request.reserved_bytes,
                                              " bytes of cache, the whole cache has ",
                                              options_.cache_bytes));
  }
  if (request.n_choices > options_.max_running_seqs) {
    return absl::OutOfRangeError(absl::StrCat("n: ", request.n_choices, ", expected at most ",
                                              options_.max_running_seqs, " running sequences"));
  }
  if (n_waiting() >= options_.max_waiting_requests) {
    return absl::ResourceExhaustedError(absl::StrCat("queue: ", n_waiting(),
                                                     " requests waiting, expected fewer than ",
                                                     options_.max_waiting_requests));
  }
  waiting_.push_back(request);
  return absl::OkStatus();
}

std::vector<ScheduledRows> Scheduler::NextBatch(int64_t max_mixed_rows) {
  while (PlaceResumed() && AdmitNext()) {
  }
  std::vector<ScheduledRows> batch;
  int64_t budget = options_.max_batch_tokens;
  AppendDecodeRows(&budget, &batch);
  if (const auto n_decode = static_cast<int64_t>(batch.size()); n_decode > 0) {
    budget = std::min(budget, std::max(options_.min_prompt_rows, max_mixed_rows - n_decode));
  }
  AppendPromptChunks(&budget, &batch);
  return batch;
}

void Scheduler::AppendDecodeRows(int64_t* budget, std::vector<ScheduledRows>* batch) const {
  for (const Running& r : running_) {
    if (!r.has_places) continue;
    for (int32_t c = 0; c < static_cast<int32_t>(r.next_position.size()); ++c) {
      if (r.finished[c]) continue;
      batch->push_back({r.request.id, c, r.next_position[c], 1, true});
      --*budget;
    }
  }
  LK_CHECK(*budget >= 0);
}

void Scheduler::AppendPromptChunks(int64_t* budget, std::vector<ScheduledRows>* batch) const {
  for (const Running& r : running_) {
    if (*budget == 0) return;
    if (r.prompt_complete() || !r.has_places) continue;
    const int64_t n = std::min(*budget, r.request.n_prompt_tokens - r.n_computed);
    const bool samples = r.n_computed + n == r.request.n_prompt_tokens;
    batch->push_back({r.request.id, 0, r.n_computed, n, samples});
    *budget -= n;
  }
}

// False while a resumed request waits for places: nobody is admitted before it.
bool Scheduler::PlaceResumed() {
  for (Running& r : running_) {
    if (r.is_paused || r.has_places) continue;
    if (running_choices_ + r.n_unfinished() > options_.max_running_seqs) return false;
    running_choices_ += r.n_unfinished();
    r.has_places = true;
  }
  return true;
}

bool Scheduler::AdmitNext() {
  if (waiting_.empty()) return false;
  const SchedulerRequest& next = waiting_.front();
  if (running_choices_ + next.n_choices > options_.max_running_seqs) return false;
  if (reserved_bytes_ + next.reserved_bytes > options_.cache_bytes) return false;
  running_choices_ += next.n_choices;
  reserved_bytes_ += next.reserved_bytes;
  running_.push_back({next, 0, {}, {}});
  waiting_.pop_front();
  return true;
}

void Scheduler::Commit(const std::vector<ScheduledRows>& batch) {
  for (const ScheduledRows& rows : batch) {
    Running* r = Find(rows.request);
    if (r == nullptr) continue;
    if (!r->prompt_complete()) {
      r->n_computed += rows.n_rows;
      if (!r->prompt_complete()) continue;
      r->next_position.assign(r->request.n_choices, r->request.n_prompt_tokens);
      r->finished.assign(r->request.n_choices, false);
    } else {
      r->next_position[rows.choice] += rows.n_rows;
    }
  }
}

void Scheduler::FinishChoice(uint64_t request, int32_t choice) {
  Running* r = Find(request);
  LK_CHECK(r != nullptr && choice < static_cast<int32_t>(r->finished.size()));
  if (r->finished[choice]) return;
  r->finished[choice] = true;
  if (r->has_places) --running_choices_;
}

void Scheduler::SetPaused(uint64_t request, bool is_paused) {
  Running* r = Find(request);
  if (r == nullptr) return;
  r->is_paused = is_paused;
  if (!is_paused || !r->has_places) return;
  running_choices_ -= r->n_unfinished();
  r->has_places = false;
}

void Scheduler::Remove(uint64_t request) {
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const SchedulerRequest& r) { return r.id == request; });
  if (waiting != waiting_.end()) {
    waiting_.erase(waiting);
    return;
  }
  const auto running = std::find_if(running_.begin(), running_.end(),
                                    [&](const Running& r) { return r.request.id == request; });
  if (running == running_.end()) return;
  if (running->has_places) running_choices_ -= running->n_unfinished();
  reserved_bytes_ -= running->request.reserved_bytes;
  running_.erase(running);
}

Scheduler::Running* Scheduler::Find(uint64_t request) {
  for (Running& r : running_) {
    if (r.request.id == request) return &r;
  }
  return nullptr;
}

}  // namespace lowkey

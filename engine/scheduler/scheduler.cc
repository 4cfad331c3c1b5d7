#include "engine/scheduler/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// Tokens by which reservations grow.
constexpr int64_t kGrowthTokens = 128;
// The weight of a request that ends in the mean share of max_new_tokens that requests use, and the
// margin over that share, since half of the requests use more.
constexpr double kShareStep = 1.0 / 16;
constexpr double kShareMargin = 1.25;

FairQueue::Waiting WaitingOf(const SchedulerRequest& r) {
  return {r.id, r.tenant, r.weight, r.priority};
}

}  // namespace

int64_t Scheduler::Entry::n_unfinished() const {
  const auto n_finished = std::count_if(sequences.begin(), sequences.end(),
                                        [](const Sequence& s) { return s.is_finished; });
  return request.n_choices - n_finished;
}

int64_t Scheduler::Entry::n_known() const {
  int64_t n = request.n_prompt_tokens;
  for (const Sequence& s : sequences) {
    if (!s.is_finished) n = std::max(n, s.n_known);
  }
  return n;
}

// Counts rows: the last token is never fed.
int64_t Scheduler::FinalTokens(const SchedulerRequest& r) const {
  return r.n_prompt_tokens + std::max<int64_t>(0, r.max_new_tokens - 1);
}

int64_t Scheduler::ProbableNewTokens(const SchedulerRequest& r) const {
  const double share = std::min(1.0, kShareMargin * used_share_);
  return static_cast<int64_t>(std::ceil(share * static_cast<double>(r.max_new_tokens)));
}

int64_t Scheduler::ExpectedNewTokens(const SchedulerRequest& r) const {
  const int64_t most = ProbableNewTokens(r);
  if (!used_tokens_.has_value()) return most;
  return std::min(most, static_cast<int64_t>(std::ceil(kShareMargin * *used_tokens_)));
}

int64_t Scheduler::TokensToReserve(const Entry& entry) const {
  const int64_t n_known = entry.n_known();
  const int64_t grown = (n_known / kGrowthTokens + 1) * kGrowthTokens;
  const int64_t probable = entry.request.n_prompt_tokens + ProbableNewTokens(entry.request);
  return std::min(FinalTokens(entry.request), std::max(grown, probable));
}

absl::Status Scheduler::Enqueue(const SchedulerRequest& request) {
  if (const int64_t most = request.bytes(FinalTokens(request)); most > options_.cache_bytes) {
    return absl::OutOfRangeError(absl::StrCat(
        "request needs ", most, " bytes of cache, the whole cache has ", options_.cache_bytes));
  }
  if (request.n_choices > options_.max_running_seqs) {
    return absl::InvalidArgumentError(absl::StrCat("n: ", request.n_choices, ", expected at most ",
                                                   options_.max_running_seqs,
                                                   " running sequences"));
  }
  if (is_full()) {
    return absl::ResourceExhaustedError(absl::StrCat("queue: ", n_waiting(),
                                                     " requests waiting, expected fewer than ",
                                                     options_.max_waiting_requests));
  }
  // A prompt longer than the whole bound may still wait alone.
  const int64_t n_tokens = n_waiting_prompt_tokens_ + request.n_prompt_tokens;
  if (n_waiting() > 0 && n_tokens > options_.max_waiting_prompt_tokens) {
    return absl::ResourceExhaustedError(
        absl::StrCat("queue: ", n_tokens, " prompt tokens waiting with this request's, expected ",
                     "at most ", options_.max_waiting_prompt_tokens));
  }
  Entry& entry = entries_[request.id];
  entry.request = request;
  entry.sequences = {{0, request.n_prompt_tokens, false}};
  entry.place = queue_.Push(WaitingOf(request));
  n_waiting_prompt_tokens_ += request.n_prompt_tokens;
  return absl::OkStatus();
}

ScheduledBatch Scheduler::NextBatch(int64_t max_mixed_rows) {
  ScheduledBatch batch;
  GrowReservations(&batch.preempted);
  const bool has_room = batch.preempted.empty();
  while (has_room && PlaceResumed() && AdmitNext(&batch.preempted)) {
  }
  int64_t budget = options_.max_batch_tokens;
  AppendDecodeRows(&budget, &batch.rows);
  AppendDrafts(&budget, &batch.rows);
  if (const int64_t n_decode = options_.max_batch_tokens - budget; n_decode > 0) {
    budget = std::min(budget, std::max(options_.min_prompt_rows, max_mixed_rows - n_decode));
  }
  AppendChunks(&budget, &batch.rows);
  return batch;
}

void Scheduler::Reserve(Entry& entry, int64_t n_tokens) {
  const int64_t bytes = entry.request.bytes(n_tokens);
  reserved_bytes_ += bytes - entry.reserved_bytes;
  entry.reserved_bytes = bytes;
  entry.reserved_tokens = n_tokens;
}

void Scheduler::GrowReservations(std::vector<uint64_t>* preempted) {
  const std::vector<Entry*> eldest_first = running_;  // preemption shortens running_
  for (Entry* entry : eldest_first) {
    if (!entry->is_running() || entry->is_paused) continue;
    if (entry->n_known() <= entry->reserved_tokens) continue;
    const int64_t n_tokens = TokensToReserve(*entry);
    const int64_t n_bytes = entry->request.bytes(n_tokens);
    while (entry->is_running() &&
           reserved_bytes_ - entry->reserved_bytes + n_bytes > options_.cache_bytes) {
      Entry* const paused = YoungestPaused();
      Preempt(paused != nullptr ? *paused : *running_.back(), preempted);
    }
    if (entry->is_running()) Reserve(*entry, n_tokens);
  }
}

Scheduler::Entry* Scheduler::YoungestPaused() const {
  const auto found = std::find_if(running_.rbegin(), running_.rend(),
                                  [](const Entry* entry) { return entry->is_paused; });
  return found == running_.rend() ? nullptr : *found;
}

void Scheduler::StopRunning(Entry& entry) {
  if (entry.has_places) running_choices_ -= entry.n_unfinished();
  reserved_bytes_ -= entry.reserved_bytes;
  entry.reserved_bytes = entry.reserved_tokens = 0;
  entry.has_places = false;
  running_.erase(std::find(running_.begin(), running_.end(), &entry));
}

void Scheduler::Preempt(Entry& entry, std::vector<uint64_t>* preempted) {
  ++n_preemptions_;
  preempted->push_back(entry.request.id);
  StopRunning(entry);
  for (Sequence& s : entry.sequences) s.n_computed = 0;
  entry.state = Entry::State::kParked;
  if (!entry.is_paused) QueueAgain(entry);
}

void Scheduler::QueueAgain(Entry& entry) {
  entry.state = Entry::State::kQueued;
  queue_.PushAt(WaitingOf(entry.request), entry.place);
  n_waiting_prompt_tokens_ += entry.request.n_prompt_tokens;
}

void Scheduler::Dequeue(const Entry& entry) {
  queue_.Remove(entry.request.id);
  n_waiting_prompt_tokens_ -= entry.request.n_prompt_tokens;
}

// Returns false while a resumed request waits for places: nobody is admitted before it.
bool Scheduler::PlaceResumed() {
  for (Entry* entry : running_) {
    if (entry->is_paused || entry->has_places) continue;
    if (running_choices_ + entry->n_unfinished() > options_.max_running_seqs) return false;
    running_choices_ += entry->n_unfinished();
    entry->has_places = true;
  }
  return true;
}

bool Scheduler::AdmitNext(std::vector<uint64_t>* preempted) {
  const std::optional<uint64_t> id = queue_.Front();
  if (!id.has_value()) return false;
  Entry& entry = entries_.at(*id);
  const SchedulerRequest& r = entry.request;
  if (running_choices_ + entry.n_unfinished() > options_.max_running_seqs) return false;
  const int64_t n_tokens = TokensToReserve(entry);
  while (reserved_bytes_ + r.bytes(n_tokens) > options_.cache_bytes) {
    Entry* const paused = YoungestPaused();
    if (paused == nullptr) return false;
    Preempt(*paused, preempted);
  }
  Dequeue(entry);
  entry.state = Entry::State::kRunning;
  entry.has_places = true;
  running_choices_ += entry.n_unfinished();
  Reserve(entry, n_tokens);
  running_.push_back(&entry);
  const int64_t n_cached = options_.cached_rows ? options_.cached_rows(*id) : 0;
  LK_CHECK(n_cached >= 0 && n_cached < r.n_prompt_tokens);
  entry.sequences[0].n_computed = n_cached;
  // A preemption is not the tenant's fault: rows computed again are free.
  if (!std::exchange(entry.is_charged, true)) queue_.Charge(r.tenant, r.n_prompt_tokens - n_cached);
  return true;
}

void Scheduler::AppendDecodeRows(int64_t* budget, std::vector<ScheduledRows>* rows) const {
  for (const Entry* entry : running_) {
    if (!entry->has_places || !entry->prompt_complete()) continue;
    for (size_t c = 0; c < entry->sequences.size(); ++c) {
      const Sequence& s = entry->sequences[c];
      if (!entry->goes_on(s) || s.n_known - s.n_computed != 1) continue;
      rows->push_back({entry->request.id, static_cast<int32_t>(c), s.n_computed, 1, true});
      --*budget;
    }
  }
  LK_CHECK(*budget >= 0);
}

// Appends drafts to decode rows.
void Scheduler::AppendDrafts(int64_t* budget, std::vector<ScheduledRows>* rows) const {
  if (options_.drafts == nullptr) return;
  // Prompts keep their least share of the step.
  const bool has_prompt = std::any_of(running_.begin(), running_.end(), [](const Entry* entry) {
    return entry->has_places && !entry->prompt_complete();
  });
  const int64_t kept = has_prompt ? options_.min_prompt_rows : 0;
  int64_t left =
      std::min(*budget - kept, options_.max_drafted_rows - static_cast<int64_t>(rows->size()));
  for (ScheduledRows& r : *rows) {
    const Entry& entry = entries_.at(r.request);
    const int64_t most = std::min(left, entry.reserved_tokens - entry.sequences[r.choice].n_known);
    if (most <= 0) continue;
    r.n_drafts = options_.drafts(r.request, r.choice, most);
    LK_CHECK(r.n_drafts >= 0 && r.n_drafts <= most);
    r.n_rows += r.n_drafts;
    left -= r.n_drafts;
    *budget -= r.n_drafts;
  }
}

// Returns the first of the request's stops past n_computed rows, at most `end`.
int64_t Scheduler::NextStop(const Entry& entry, int64_t n_computed, int64_t end) {
  const std::vector<int64_t>& stops = entry.request.prompt_stops;
  const auto next = std::upper_bound(stops.begin(), stops.end(), n_computed);
  return next == stops.end() ? end : std::min(*next, end);
}

// Appends rows of prompts, and of tokens generated before a preemption.
void Scheduler::AppendChunks(int64_t* budget, std::vector<ScheduledRows>* rows) const {
  for (const Entry* entry : running_) {
    if (!entry->has_places) continue;
    const bool is_prompt = !entry->prompt_complete();
    for (size_t c = 0; c < (is_prompt ? 1 : entry->sequences.size()); ++c) {
      if (*budget == 0) return;
      const Sequence& s = entry->sequences[c];
      const int64_t end = is_prompt ? entry->request.n_prompt_tokens : s.n_known;
      if (!is_prompt && (!entry->goes_on(s) || end - s.n_computed < 2)) continue;
      const int64_t n = std::min(*budget, NextStop(*entry, s.n_computed, end) - s.n_computed);
      rows->push_back({entry->request.id, static_cast<int32_t>(c), s.n_computed, n,
                       s.n_computed + n == s.n_known && !s.is_finished});
      *budget -= n;
    }
  }
}

void Scheduler::Commit(const ScheduledBatch& batch) {
  for (const ScheduledRows& rows : batch.rows) {
    Entry* entry = Find(rows.request);
    if (entry == nullptr) continue;
    const int64_t n_prompt = entry->request.n_prompt_tokens;
    Sequence& s = entry->sequences[rows.choice];
    s.n_computed += rows.n_rows - rows.n_drafts;
    if (rows.first_position >= n_prompt) {
      s.n_known += rows.samples ? 1 : 0;
      if (rows.samples) queue_.Charge(entry->request.tenant, 1);
    } else if (s.n_computed == n_prompt) {
      if (rows.samples) entry->sequences.assign(entry->request.n_choices, {0, n_prompt + 1, false});
      for (Sequence& choice : entry->sequences) choice.n_computed = n_prompt;
    }
  }
}

void Scheduler::AcceptDraft(uint64_t request, int32_t choice) {
  Entry* entry = Find(request);
  LK_CHECK(entry != nullptr && choice < static_cast<int32_t>(entry->sequences.size()));
  Sequence& s = entry->sequences[choice];
  ++s.n_computed;
  ++s.n_known;
  queue_.Charge(entry->request.tenant, 1);
}

void Scheduler::FinishChoice(uint64_t request, int32_t choice) {
  Entry* entry = Find(request);
  LK_CHECK(entry != nullptr && choice < static_cast<int32_t>(entry->sequences.size()));
  Sequence& s = entry->sequences[choice];
  if (s.is_finished) return;
  s.is_finished = true;
  if (entry->has_places) --running_choices_;
  const SchedulerRequest& r = entry->request;
  const auto n_new = static_cast<double>(s.n_known - r.n_prompt_tokens);
  const double share =
      std::min(1.0, n_new / static_cast<double>(std::max<int64_t>(1, r.max_new_tokens)));
  used_share_ += kShareStep * (share - used_share_);
  if (r.max_new_tokens == 0) return;  // scored
  const double before = used_tokens_.value_or(n_new);
  used_tokens_ = before + kShareStep * (n_new - before);
}

void Scheduler::Preempt(uint64_t request) {
  Entry* entry = Find(request);
  LK_CHECK(entry != nullptr && entry->is_running());
  std::vector<uint64_t> preempted;
  Preempt(*entry, &preempted);
}

void Scheduler::SetPaused(uint64_t request, bool is_paused) {
  Entry* entry = Find(request);
  if (entry == nullptr) return;
  if (entry->state == Entry::State::kParked && !is_paused) QueueAgain(*entry);
  entry->is_paused = is_paused && entry->state != Entry::State::kQueued;
  if (!entry->is_paused || !entry->has_places) return;
  running_choices_ -= entry->n_unfinished();
  entry->has_places = false;
}

void Scheduler::Park(uint64_t request) {
  Entry* entry = Find(request);
  if (entry == nullptr || entry->state != Entry::State::kQueued) return;
  Dequeue(*entry);
  entry->state = Entry::State::kParked;
  entry->is_paused = true;
}

void Scheduler::NoteCachedRows(uint64_t request, int64_t n_rows) {
  Entry* entry = Find(request);
  if (entry == nullptr || entry->is_running()) return;
  LK_CHECK(n_rows >= 0 && n_rows < entry->request.n_prompt_tokens);
  entry->n_cached_rows = n_rows;
}

void Scheduler::Remove(uint64_t request) {
  Entry* entry = Find(request);
  if (entry == nullptr) return;
  if (entry->is_running()) {
    StopRunning(*entry);
  } else if (entry->state == Entry::State::kQueued) {
    Dequeue(*entry);
  }
  entries_.erase(request);
}

RemainingWork Scheduler::Remaining(const Entry& entry) const {
  const SchedulerRequest& r = entry.request;
  RemainingWork work;
  int64_t n_generated = 0;
  for (const Sequence& s : entry.sequences) {
    if (s.is_finished) continue;
    const int64_t n_rows = s.n_known - s.n_computed;
    if (n_rows > 1 || s.n_known == r.n_prompt_tokens) work.n_prompt_rows += n_rows;
    n_generated = std::max(n_generated, s.n_known - r.n_prompt_tokens);
  }
  if (!entry.is_running()) work.n_prompt_rows -= std::min(work.n_prompt_rows, entry.n_cached_rows);
  // An answer that has passed its usual length is expected to be as long again.
  const int64_t n_usual = ExpectedNewTokens(r) - n_generated;
  work.n_decode_rows = std::min(r.max_new_tokens - n_generated,
                                std::max(kGrowthTokens / 8, n_usual > 0 ? n_usual : n_generated));
  work.n_choices = entry.n_unfinished();
  work.bytes = std::max(entry.reserved_bytes, r.bytes(TokensToReserve(entry)));
  return work;
}

Forecast Scheduler::Predict(const SchedulerRequest& request, int64_t n_cached_rows,
                            const StepCost& cost, int64_t max_mixed_rows) const {
  std::vector<RemainingWork> running, ahead;
  for (const Entry* entry : running_) {
    if (!entry->is_paused) running.push_back(Remaining(*entry));
  }
  queue_.VisitAhead(WaitingOf(request), [&](uint64_t id) {
    const Entry& entry = entries_.at(id);
    ahead.push_back(Remaining(entry));
    return entry.request.n_prompt_tokens + ProbableNewTokens(entry.request);
  });
  RemainingWork own = Remaining({request, 0, {{0, request.n_prompt_tokens, false}}});
  own.n_cached_rows = n_cached_rows;
  return ForecastWork(
      std::move(running), ahead, own,
      {options_.max_running_seqs, options_.cache_bytes, options_.max_batch_tokens, max_mixed_rows},
      cost);
}

Scheduler::Entry* Scheduler::Find(uint64_t request) {
  const auto found = entries_.find(request);
  return found == entries_.end() ? nullptr : &found->second;
}

}  // namespace lowkey

// The engine's thread computes one step here, from its batch to its tokens.
#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/engine_impl.h"
#include "engine/runtime/guarded.h"

namespace lowkey {
namespace {

// Returns what a request is told of a step's failure.
absl::Status StepError(const absl::Status& status) {
  return absl::IsResourceExhausted(status) ? status : absl::InternalError(status.message());
}

}  // namespace

ScheduledBatch EngineImpl::NextBatch() {
  absl::MutexLock lock(&mutex_);
  TakeArrivals();
  ScheduledBatch batch = scheduler_.NextBatch(pace_.max_rows());
  is_all_paused_ = batch.rows.empty() && batch.preempted.empty();
  const auto suspect = std::find_if(
      batch.rows.begin(), batch.rows.end(),
      [this](const ScheduledRows& rows) { return live_.at(rows.request)->is_suspect; });
  if (suspect != batch.rows.end()) {
    std::erase_if(batch.rows, [alone = suspect->request](const ScheduledRows& rows) {
      return rows.request != alone;
    });
  }
  return batch;
}

// Returns whether the batch may be queued before the tokens of the step before it are read: a
// device must be able to compute all of it from its own memory. Batches with preempted or suspect
// requests wait, which are rare, and those with a constraint, whose masks follow from those tokens.
bool EngineImpl::RunsAhead(const ScheduledBatch& batch) const {
  if (!may_run_ahead_ || batch.rows.empty() || !batch.preempted.empty()) return false;
  return std::all_of(batch.rows.begin(), batch.rows.end(), [this](const ScheduledRows& rows) {
    const RequestState& state = *live_.at(rows.request);
    return !state.is_suspect && state.request.constraint == nullptr &&
           runner_->RunsAhead(state.request.attention);
  });
}

void EngineImpl::ReleaseCaches(const std::vector<RequestId>& ids) {
  for (RequestId id : ids) {
    if (RequestState* state = FindLive(id); state != nullptr) state->ReleaseCache();
  }
}

// Queues a step and delivers the tokens of the step before it while a device computes. Steps that
// do not run ahead deliver their own tokens too.
void EngineImpl::RunStep() {
  ScheduledBatch batch = NextBatch();
  bool runs_ahead = RunsAhead(batch);
  if (pending_.has_value() && !runs_ahead) {
    Deliver();
    ReleaseCaches(batch.preempted);
    batch = NextBatch();  // the delivered tokens count
    runs_ahead = RunsAhead(batch);
  }
  ReleaseCaches(batch.preempted);
  NoteStart(batch.rows);
  TakeOutUnready(batch.rows);
  if (batch.rows.empty()) return;
  std::optional<Step> step = QueueStep(batch.rows);
  if (pending_.has_value()) Deliver();
  if (!step.has_value()) return;
  {
    absl::MutexLock lock(&mutex_);
    scheduler_.Commit(batch);
    Publish();  // a reader of a token finds its step in Stats
  }
  pending_ = std::move(step);
  if (!runs_ahead || !pending_->drawing.ok()) Deliver();
}

// A request is served from the first step on that has its rows, also where it sits that step out.
void EngineImpl::NoteStart(const std::vector<ScheduledRows>& batch) {
  const absl::Time now = SteadyNow();
  for (const ScheduledRows& rows : batch) {
    RequestState& state = *live_.at(rows.request);
    if (!state.started.has_value()) state.started = now;
  }
}

// Computes or queues the batch. nullopt: the step failed, and there is nothing to wait for.
std::optional<EngineImpl::Step> EngineImpl::QueueStep(const std::vector<ScheduledRows>& batch) {
  Step step;
  step.started = SteadyNow();
  step.is_mixed = IsMixed(batch);
  for (const ScheduledRows& rows : batch) step.n_rows += rows.n_rows;
  BeginMasks(batch);
  absl::Status status;
  const absl::Status thrown = Guarded([&] { status = ComputeBatch(batch); });
  if (!thrown.ok() && runner_->health().ok()) {
    ComputeAlone(batch, thrown);
    return std::nullopt;
  }
  if (HasFailed()) return std::nullopt;
  if (!status.ok()) {
    // Reservations cover every step, so this is the machine's own memory: the newest request gives
    // way.
    if (pending_.has_value()) Deliver();
    Finish(batch.back().request, FinishReason::kError, StepError(status));
    return std::nullopt;
  }
  EndSuspicion(batch);
  ++counters_.n_steps;
  CountRows(step.n_rows);
  QueueDraw(batch, step);
  return step;
}

void EngineImpl::CountRows(int64_t n_rows) {
  counters_.n_rows += n_rows;
  const auto bound = std::lower_bound(kStepRowBounds.begin(), kStepRowBounds.end(), n_rows);
  ++counters_.n_steps_by_rows[static_cast<size_t>(bound - kStepRowBounds.begin())];
}

// A step that threw has left its sequences half-written: all are dropped as if preempted, and each
// is then computed alone, which shows whose fault it was.
void EngineImpl::ComputeAlone(const std::vector<ScheduledRows>& batch, const absl::Status& thrown) {
  if (pending_.has_value()) Deliver();  // what came before it counts
  std::set<RequestId> ids;
  for (const ScheduledRows& rows : batch) ids.insert(rows.request);
  if (ids.size() == 1) return Finish(*ids.begin(), FinishReason::kError, thrown);
  absl::MutexLock lock(&mutex_);
  for (RequestId id : ids) {
    if (!live_.contains(id)) continue;
    scheduler_.Preempt(id);
    live_.at(id)->ReleaseCache();
    live_.at(id)->is_suspect = true;
  }
}

// Clears a request's suspicion once every choice has caught up with where it was.
void EngineImpl::EndSuspicion(const std::vector<ScheduledRows>& batch) {
  const auto n_done = std::count_if(batch.begin(), batch.end(),
                                    [](const ScheduledRows& rows) { return rows.samples; });
  RequestState& state = *live_.at(batch[0].request);
  if (n_done == state.n_unfinished()) state.is_suspect = false;
}

// Returns whether streams wait while a prompt is computed.
bool EngineImpl::IsMixed(const std::vector<ScheduledRows>& batch) const {
  const auto is_decode = [this](const ScheduledRows& rows) {
    return rows.first_position >= live_.at(rows.request)->n_prompt_tokens();
  };
  const auto n_decode = std::count_if(batch.begin(), batch.end(), is_decode);
  return n_decode > 0 && n_decode < static_cast<int64_t>(batch.size());
}

// Returns whether the pending step draws the token at this position.
bool EngineImpl::IsPending(const RequestState& state, int32_t choice, int64_t position) {
  return position == state.n_known(choice);
}

// Returns the tokens of the rows that are drafts.
absl::Span<const int32_t> EngineImpl::DraftsOf(const RequestState& state,
                                               const ScheduledRows& rows) {
  return state.choices[rows.choice].draft.first(static_cast<size_t>(rows.n_drafts));
}

// Lists the batch's rows with their tokens; tokens that the pending step draws stay on the device.
void EngineImpl::FillStepRows(const std::vector<ScheduledRows>& batch) {
  step_tokens_.clear();
  step_rows_.clear();
  for (const ScheduledRows& rows : batch) {
    const RequestState& state = *live_.at(rows.request);
    const bool is_drawn = IsPending(state, rows.choice, rows.first_position);
    for (int64_t i = 0; i < rows.n_rows - rows.n_drafts; ++i) {
      step_tokens_.push_back(is_drawn ? 0 : state.TokenAt(rows.choice, rows.first_position + i));
    }
    const auto drafts = DraftsOf(state, rows);
    step_tokens_.insert(step_tokens_.end(), drafts.begin(), drafts.end());
  }
  auto tokens = absl::MakeConstSpan(step_tokens_);
  for (const ScheduledRows& rows : batch) {
    const auto n = static_cast<size_t>(rows.n_rows);
    RequestState& state = *live_.at(rows.request);
    step_rows_.push_back({&state.choices[rows.choice].cache, rows.first_position, tokens.first(n)});
    if (IsPending(state, rows.choice, rows.first_position)) {
      step_rows_.back().drawn = pending_->numbers.at({rows.request, rows.choice});
    }
    step_rows_.back().n_drafts = rows.n_drafts;
    tokens.remove_prefix(n);
  }
}

absl::Status EngineImpl::ComputeBatch(const std::vector<ScheduledRows>& batch) {
  FillStepRows(batch);
  LK_RETURN_IF_ERROR(runner_->Compute(step_rows_));
  // Advance may drop pages that only the prompt's own rows read.
  for (const ScheduledRows& rows : batch) {
    SavePrefixAt(*live_.at(rows.request), rows.first_position + rows.n_rows);
  }
  runner_->Advance();
  for (PrefixCache& prefixes : prefixes_) prefixes.Recount();
  const ScheduledRows* before = nullptr;  // a request's rows follow one another
  for (const ScheduledRows& rows : batch) {
    RequestState& state = *live_.at(rows.request);
    if (before == nullptr || before->request != rows.request) state.NotePeak();
    before = &rows;
    const bool ends_prompt = rows.first_position + rows.n_rows == state.n_prompt_tokens();
    if (ends_prompt && state.is_forked()) state.Fork(config().vocab_size);  // once more
  }
  return absl::OkStatus();
}

// Lists the rows of the step whose logits are wanted and, on a device, queues their draws.
void EngineImpl::QueueDraw(const std::vector<ScheduledRows>& batch, Step& step) {
  std::vector<int64_t> row_numbers;
  int64_t first_row = 0;
  for (const ScheduledRows& rows : batch) {
    RequestState& state = *live_.at(rows.request);
    state.n_drafted_tokens += static_cast<int32_t>(rows.n_drafts);
    counters_.n_drafted_tokens += rows.n_drafts;
    for (int64_t i = 0; i < rows.n_rows; ++i) {
      const int64_t position = rows.first_position + i;
      const bool scores = state.WantsPromptLogprob(position + 1);
      const int64_t n_known = rows.n_rows - rows.n_drafts;
      const bool samples = rows.samples && i + 1 >= n_known;
      if (!scores && !samples) continue;
      step.wanted.push_back({rows.request, rows.choice, position});
      if (i >= n_known) step.wanted.back().draft = DraftsOf(state, rows)[i - n_known];
      row_numbers.push_back(first_row + i);
    }
    first_row += rows.n_rows;
  }
  for (const WantedRow& wanted : step.wanted) ForkAt(wanted);
  int64_t number = 0;
  step.drawing = runner_->QueueDraw(row_numbers, [&](size_t i) {
    RowRequest request = RequestOf(step.wanted[i]);
    for (size_t d = 0; d < request.draws.size(); ++d) {
      const int32_t choice = step.wanted[i].choice + static_cast<int32_t>(d);
      step.numbers[{step.wanted[i].request, choice}] = number + static_cast<int64_t>(d);
    }
    number += static_cast<int64_t>(request.n_tokens());
    return request;
  });
}

// Forks a request at the row that ends its prompt: every choice draws from that row.
void EngineImpl::ForkAt(const WantedRow& wanted) {
  RequestState* state = FindLive(wanted.request);
  if (state == nullptr || wanted.position + 1 != state->n_prompt_tokens()) return;
  const absl::Status status = Guarded([&] { state->Fork(config().vocab_size); });
  if (!status.ok()) Finish(state->id, FinishReason::kError, status);
}

RowRequest EngineImpl::RequestOf(const WantedRow& wanted) {
  RequestState* live = FindLive(wanted.request);
  if (live == nullptr) return {};
  RequestState& state = *live;
  const int64_t n_prompt = state.n_prompt_tokens();
  if (wanted.position + 1 < n_prompt) return {{}, state.PromptTokenAfter(wanted.position)};
  RowRequest request;
  if (state.request.max_new_tokens == 0) return request;
  const bool is_fork = wanted.position + 1 == n_prompt;
  const int32_t end = is_fork ? state.request.n : wanted.choice + 1;
  for (int32_t c = wanted.choice; c < end; ++c) {
    RowRequest::Draw& draw =
        request.draws.emplace_back(RowRequest::Draw{&*state.choices[c].sampler});
    if (IsPending(state, c, wanted.position)) draw.pending = pending_->numbers.at({state.id, c});
  }
  return request;
}

// Waits for the pending step's tokens and hands them out.
void EngineImpl::Deliver() {
  Step step = *std::exchange(pending_, std::nullopt);
  absl::Status drawn = step.drawing.status();
  if (drawn.ok()) {
    drawn = runner_->Collect(*std::move(step.drawing), [&](size_t i, RowTokens& tokens) {
      const absl::Status status = Guarded([&] { ConsumeRow(step.wanted[i], tokens); });
      if (!status.ok()) Finish(step.wanted[i].request, FinishReason::kError, status);
    });
  }
  NoteTime(step);
  if (!drawn.ok() && !HasFailed()) {
    // No token was drawn: requests that wait for one cannot go on.
    for (const WantedRow& row : step.wanted) {
      Finish(row.request, FinishReason::kError, StepError(drawn));
    }
  }
  NoteDelivery();
}

// A step that ran ahead began when the one before it ended. The time in which nothing happened but
// that its tokens waited for masks is left out: it follows from the requests' forms and not from
// the number of rows. A clock that is set back gives no time at all.
void EngineImpl::NoteTime(const Step& step) {
  const absl::Time now = SteadyNow();
  const absl::Duration waited = runner_->ComputesMeanwhile()
                                    ? absl::ZeroDuration()
                                    : counters_.waited_for_masks - noted_mask_wait_;
  const absl::Duration took = now - std::max(step.started, last_delivery_) - waited;
  last_delivery_ = now;
  noted_mask_wait_ = counters_.waited_for_masks;
  if (took <= absl::ZeroDuration()) return;
  if (step.is_mixed) pace_.Note(step.n_rows, took);
  absl::MutexLock lock(&mutex_);
  step_cost_.Note(step.n_rows, took, now);
  max_mixed_rows_ = pace_.max_rows();
}

void EngineImpl::ConsumeRow(const WantedRow& wanted, RowTokens& tokens) {
  RequestState* live = FindLive(wanted.request);
  if (live == nullptr) return;  // ended by an earlier row of this step
  RequestState& state = *live;
  const int64_t n_prompt = state.n_prompt_tokens();
  if (wanted.position + 1 < n_prompt) {
    return state.AddPromptLogprob(wanted.position,
                                  tokens.Score(state.PromptTokenAfter(wanted.position)));
  }
  if (wanted.draft.has_value() && !KeepDraft(state, wanted)) return;
  if (wanted.position + 1 > n_prompt) return SampleChoice(state, wanted.choice, tokens);
  CompletePrompt(state);
  // The last choice to end takes the request with it.
  const int32_t n_choices = state.request.n;
  for (int32_t c = 0; c < n_choices && live_.contains(wanted.request); ++c) {
    SampleChoice(state, c, tokens);
  }
}

// The scheduler calls this for a choice that decodes; returns the number of tokens drafted.
int64_t EngineImpl::Draft(RequestState& state, int32_t choice, int64_t most) {
  const bool looks_up = state.request.draft == DraftMode::kLookup;
  const bool jumps = jumps_ahead_ && state.request.constraint != nullptr;
  if (!looks_up && !jumps) return 0;
  ChoiceState& c = state.choices[choice];
  c.draft = {};
  most = runner_->RevocableRows(c.cache, most + 1) - 1;
  ConstraintPath* const path = c.sampler->constraint();
  // A draft that cannot be made is no loss.
  (void)Guarded([&] {
    if (jumps) c.draft = c.forced.Draft(path->constraint(), c.tokens, most);
    if (!looks_up || !c.draft.empty()) return;
    const auto found = c.lookup.Draft(state.request.prompt, c.tokens, most);
    if (path != nullptr) c.lookup.Cut(CountAllowed(path->constraint(), found));
    c.draft = c.lookup.draft();
  });
  return static_cast<int64_t>(c.draft.size());
}

// Keeps the row of a draft that the rows before it gave; false for any other draft, and for one
// whose row's mask the step's budget does not reach.
bool EngineImpl::KeepDraft(RequestState& state, const WantedRow& wanted) {
  ChoiceState& c = state.choices[wanted.choice];
  // After a wrong draft no token follows that a later one could be.
  const bool is_next = wanted.position + 1 == state.n_known(wanted.choice);
  if (!is_next || c.tokens.back() != *wanted.draft || c.finish_reason.has_value()) return false;
  if (!HasDraftsMask(state, wanted.choice)) {
    // The draft was right.
    c.forced.Forget();
    c.lookup.Forget();
    return false;
  }
  runner_->KeepDraft(c.cache);
  ++state.n_accepted_tokens;
  ++counters_.n_accepted_tokens;
  absl::MutexLock lock(&mutex_);
  scheduler_.AcceptDraft(state.id, wanted.choice);
  return true;
}

void EngineImpl::CompletePrompt(RequestState& state) {
  counters_.n_prompt_tokens += state.n_prompt_tokens();
  if (state.wants_prompt_logprobs()) {
    state.sink->OnPromptLogprobs(std::move(state.prompt_logprobs));
  }
}

void EngineImpl::SampleChoice(RequestState& state, int32_t choice, RowTokens& tokens) {
  ChoiceState& c = state.choices[choice];
  if (c.finish_reason.has_value()) return;
  if (state.request.max_new_tokens == 0) return FinishChoice(state, choice, FinishReason::kLength);
  absl::StatusOr<SampledToken> token = tokens.Sample(*c.sampler);
  if (ConstraintPath* const path = c.sampler->constraint(); path != nullptr) {
    const MaskCounts counts = path->TakeCounts();
    counters_.n_masks += counts.n_masks;
    counters_.n_masks_ahead += counts.n_ahead;
    counters_.waited_for_masks += counts.waited;
  }
  if (!token.ok()) return Finish(state.id, FinishReason::kError, token.status());
  c.tokens.push_back(token->token);
  ++counters_.n_generated_tokens;
  state.last_token = SteadyNow();
  if (!state.first_token.has_value()) state.first_token = state.last_token;

  const SinkAnswer answer = state.sink->OnToken(choice, *token);
  if (answer == SinkAnswer::kPause) {
    state.was_paused = true;
    absl::MutexLock lock(&mutex_);
    scheduler_.SetPaused(state.id, true);
  }
  if (answer == SinkAnswer::kCancel) {
    return Finish(state.id, FinishReason::kCancelled, absl::CancelledError("the reader is gone"));
  }
  const std::vector<int32_t>& stops = state.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token->token) != stops.end()) {
    return FinishChoice(state, choice, FinishReason::kStopToken);
  }
  if (answer == SinkAnswer::kStop) return FinishChoice(state, choice, FinishReason::kStoppedBySink);
  if (static_cast<int32_t>(c.tokens.size()) >= state.request.max_new_tokens) {
    FinishChoice(state, choice, FinishReason::kLength);
  }
}

}  // namespace lowkey

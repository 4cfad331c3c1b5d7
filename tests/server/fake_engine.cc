#include "tests/server/fake_engine.h"

namespace lowkey {

FakeEngine::FakeEngine(int32_t vocab_size) {
  config_.vocab_size = vocab_size;
  config_.architecture = "LlamaForCausalLM";
  config_.bos_token = 1;
  config_.eos_tokens = {2};
  limits_ = {.context_tokens = 2048, .max_running_seqs = 4, .cache_bytes = 1 << 20};
}

FakeEngine::~FakeEngine() {
  while (!ids().empty()) Cancel(ids().front());
}

absl::StatusOr<RequestId> FakeEngine::Submit(EngineRequest request, std::unique_ptr<Sink> sink) {
  absl::MutexLock lock(&mutex_);
  if (submit_error_.has_value()) return *submit_error_;
  const RequestId id = ++last_id_;
  requests_.emplace(id, Entry{std::move(request), std::move(sink), {}});
  return id;
}

void FakeEngine::Cancel(RequestId id) {
  Finish(id, FinishReason::kCancelled, absl::CancelledError("cancelled"));
}

void FakeEngine::Resume(RequestId id) {
  absl::MutexLock lock(&mutex_);
  resumed_.push_back(id);
}

bool FakeEngine::Drain(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  submit_error_ = absl::UnavailableError("draining");
  return mutex_.AwaitWithDeadline(absl::Condition(this, &FakeEngine::IsIdle), deadline);
}

void FakeEngine::EndAll(const absl::Status& status) {
  for (RequestId id : ids()) Finish(id, FinishReason::kCancelled, status);
}

EngineStats FakeEngine::Stats() const {
  absl::MutexLock lock(&mutex_);
  EngineStats stats;
  stats.n_running_requests = static_cast<int64_t>(requests_.size());
  stats.n_finished_requests = n_finished_;
  stats.n_cancelled_requests = n_cancelled_;
  stats.dtype = "float32";
  return stats;
}

void FakeEngine::SetProfile(SelectionProfile profile) {
  absl::MutexLock lock(&mutex_);
  profile_ = std::move(profile.name);
}

CostTable FakeEngine::Costs(const CostQuery& query) const {
  if (on_costs) on_costs();
  absl::MutexLock lock(&mutex_);
  CostTable table;
  table.profile = profile_;
  MechanismCosts& costs = table.mechanisms.emplace_back();
  for (const int64_t n : query.lengths) {
    costs.points.push_back({n, 0.5, 0.25, 0.5 + 0.25 * static_cast<double>(query.n_new_tokens),
                            16 * (n + query.n_new_tokens)});
  }
  table.selections.push_back({{.objective = Objective::kLatency},
                              Mechanism::kStandard,
                              {{Mechanism::kStandard, Mechanism::kTaylorShift, 512}}});
  table.selections.push_back({{.objective = Objective::kMemory}, std::nullopt, {}});
  return table;
}

absl::StatusOr<std::vector<CacheBytes>> FakeEngine::BytesByLength(
    const AttentionOptions& options, absl::Span<const int64_t> lengths) const {
  if (options.mechanism == Mechanism::kLasso) {
    return absl::FailedPreconditionError("attention.mechanism: lasso needs weights");
  }
  std::vector<CacheBytes> bytes;
  const int64_t each = options.mechanism == Mechanism::kStandard ? 16 : 8;
  for (const int64_t n : lengths) bytes.push_back({each * n, each * n});
  return bytes;
}

std::vector<MechanismInfo> FakeEngine::mechanisms() const {
  MeasuredQuality measured;
  measured.options.standard.storage = CacheStorage::kInt4;
  measured.ratios = PerplexityRatios({{2048, 1.01}});
  measured.recalled_digits = {{4096, 0.75}};
  measured.copied_tokens = {{4096, 0.5}};
  measured.right_answers = 0.25;
  return {{Mechanism::kStandard, {}, 1024.0, {}, false, {measured}},
          {Mechanism::kAtp, {}, 512.0, PerplexityRatios({{512, 1.1}, {2048, 1.2}}), true},
          {Mechanism::kTaylorShift, {}, 0.0, {}, true}};
}

std::vector<RequestId> FakeEngine::ids() const {
  absl::MutexLock lock(&mutex_);
  std::vector<RequestId> ids;
  for (const auto& [id, entry] : requests_) ids.push_back(id);
  return ids;
}

bool FakeEngine::WaitForRunning(size_t n, absl::Duration timeout) {
  const auto has_n = [this, n]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return requests_.size() == n; };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&has_n), timeout);
}

bool FakeEngine::WaitForResumes(size_t n, absl::Duration timeout) {
  const auto has_n = [this, n]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return resumed_.size() >= n; };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&has_n), timeout);
}

EngineRequest FakeEngine::request(RequestId id) const {
  absl::MutexLock lock(&mutex_);
  return requests_.at(id).request;
}

SinkAnswer FakeEngine::Emit(RequestId id, int32_t token, int32_t choice) {
  SampledToken sampled;
  sampled.token = token;
  return Emit(id, sampled, choice);
}

SinkAnswer FakeEngine::Emit(RequestId id, const SampledToken& token, int32_t choice) {
  absl::MutexLock lock(&mutex_);
  const auto it = requests_.find(id);
  if (it == requests_.end()) return SinkAnswer::kStop;
  ++it->second.n_generated[choice];
  return it->second.sink->OnToken(choice, token);
}

void FakeEngine::EmitPromptLogprobs(RequestId id, std::vector<PromptLogprob> logprobs) {
  absl::MutexLock lock(&mutex_);
  requests_.at(id).sink->OnPromptLogprobs(std::move(logprobs));
}

void FakeEngine::Finish(RequestId id, FinishReason reason, absl::Status status) {
  std::optional<Entry> entry;
  FinalEvent event;
  {
    absl::MutexLock lock(&mutex_);
    const auto it = requests_.find(id);
    if (it == requests_.end()) return;
    event = EventOf(it->second, reason, std::move(status));
    entry = std::move(it->second);
    requests_.erase(it);
    ++(reason == FinishReason::kCancelled ? n_cancelled_ : n_finished_);
  }
  entry->sink->OnDone(event);
}

void FakeEngine::Accept() {
  absl::MutexLock lock(&mutex_);
  submit_error_.reset();
}

void FakeEngine::RefuseWith(absl::Status error) {
  absl::MutexLock lock(&mutex_);
  submit_error_ = std::move(error);
}

FinalEvent FakeEngine::EventOf(Entry& entry, FinishReason reason, absl::Status status) {
  FinalEvent event;
  event.status = std::move(status);
  event.n_prompt_tokens = static_cast<int32_t>(entry.request.prompt.size());
  event.seed = entry.request.sampling.seed;
  event.attention.mechanism = entry.request.attention.mechanism;
  for (int32_t i = 0; i < entry.request.n; ++i) {
    event.finish_reasons.push_back(reason);
    event.n_generated.push_back(entry.n_generated[i]);
  }
  return event;
}

}  // namespace lowkey

// TextService::Score computes log-probabilities through prompts that generate nothing.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/status_macros.h"
#include "server/text_service.h"

namespace lowkey {
namespace {

struct ScorePrompts {
  std::vector<TokenList> prompts;  // context and continuation, one per continuation
  size_t boundary = 0;             // length of the condition, which all prompts share, in tokens
};

// Gathers the continuations' results. Sinks call it from the engine's thread; Abandon may come from
// the thread that submits.
class ScoreCollector {
 public:
  ScoreCollector(size_t n, std::unique_ptr<LiveRequests::Claim> claim, ScoreCallback callback)
      : n_left_(n), claim_(std::move(claim)), callback_(std::move(callback)) {
    result_.scores.resize(n);
  }

  void Add(size_t index, ContinuationScore score, const FinalEvent& event) {
    ScoreCallback callback;
    absl::StatusOr<ScoreResult> outcome = absl::UnknownError("");
    {
      absl::MutexLock lock(&mutex_);
      if (status_.ok()) status_ = event.status;
      result_.scores[index] = std::move(score);
      result_.n_prompt_tokens += event.n_prompt_tokens;
      result_.n_cached_tokens += event.n_cached_tokens;
      if (--n_left_ > 0) return;
      claim_->Release();
      callback = std::exchange(callback_, nullptr);
      outcome = status_.ok() ? absl::StatusOr<ScoreResult>(Finished()) : status_;
    }
    if (callback != nullptr) callback(std::move(outcome));
  }

  void Abandon() {
    absl::MutexLock lock(&mutex_);
    callback_ = nullptr;
  }

 private:
  ScoreResult Finished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto best =
        std::max_element(result_.scores.begin(), result_.scores.end(),
                         [](const auto& a, const auto& b) { return a.logprob < b.logprob; });
    result_.best = static_cast<size_t>(best - result_.scores.begin());
    return std::move(result_);
  }

  absl::Mutex mutex_;
  size_t n_left_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<LiveRequests::Claim> claim_;
  ScoreCallback callback_ ABSL_GUARDED_BY(mutex_);
  ScoreResult result_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

class ScoreSink : public Sink {
 public:
  ScoreSink(std::shared_ptr<ScoreCollector> collector, size_t index)
      : collector_(std::move(collector)), index_(index) {}

  void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) override {
    for (const PromptLogprob& prompt : logprobs) {
      score_.logprob += prompt.token.logprob;
      score_.tokens.push_back(prompt.token);
      score_.is_greedy &= !prompt.top.empty() && prompt.top[0].token == prompt.token.token;
    }
  }

  SinkAnswer OnToken(int32_t, const SampledToken&) override { return SinkAnswer::kStop; }

  void OnDone(const FinalEvent& event) override {
    collector_->Add(index_, std::move(score_), event);
  }

 private:
  const std::shared_ptr<ScoreCollector> collector_;
  const size_t index_;
  ContinuationScore score_;
};

size_t CommonPrefix(const TokenList& a, const TokenList& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

absl::Status CheckContinuations(const ScoreRequest& request) {
  const size_t n = request.continuations.size();
  if (n == 0 || n > kMaxContinuations) {
    return absl::InvalidArgumentError(
        absl::StrCat("continuations: ", n, ", expected 1..", kMaxContinuations));
  }
  for (size_t i = 0; i < n; ++i) {
    const Input& input = request.continuations[i];
    if (input.index() != request.context.index()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "continuations[", i, "]: not of the context's kind, expected all texts or all ids"));
    }
    const bool empty = std::visit([](const auto& value) { return value.empty(); }, input);
    if (empty) {
      return absl::InvalidArgumentError(
          absl::StrCat("continuations[", i, "]: empty, expected 1 token or more"));
    }
  }
  return absl::OkStatus();
}

Input Joined(const Input& context, const Input& continuation) {
  if (const auto* text = std::get_if<std::string>(&context)) {
    return *text + std::get<std::string>(continuation);
  }
  TokenList tokens = std::get<TokenList>(context);
  const TokenList& more = std::get<TokenList>(continuation);
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

absl::Status CheckBoundary(const ScorePrompts& prompts) {
  if (prompts.boundary == 0) {
    return absl::InvalidArgumentError(
        "context: shares no token with context and continuation together, expected 1 or more");
  }
  for (size_t i = 0; i < prompts.prompts.size(); ++i) {
    if (prompts.prompts[i].size() > prompts.boundary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("continuations[", i, "]: adds no token to the context, expected 1 or more"));
  }
  return absl::OkStatus();
}

// Submits all continuations or none: a refusal cancels those submitted before it.
absl::StatusOr<std::vector<RequestId>> SubmitAll(Engine& engine, const ScorePrompts& prompts,
                                                 const EngineRequest& base,
                                                 std::shared_ptr<ScoreCollector> collector) {
  std::vector<RequestId> ids;
  for (size_t i = 0; i < prompts.prompts.size(); ++i) {
    EngineRequest request = base;
    request.prompt = prompts.prompts[i];
    request.prompt_logprobs_from = static_cast<int32_t>(prompts.boundary);
    const absl::StatusOr<RequestId> id =
        engine.Submit(std::move(request), std::make_unique<ScoreSink>(collector, i));
    if (!id.ok()) {
      collector->Abandon();
      for (RequestId submitted : ids) engine.Cancel(submitted);
      return id.status();
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::vector<RequestId>> TextService::Score(const ScoreRequest& request,
                                                          ScoreCallback callback) {
  LK_RETURN_IF_ERROR(CheckModel(request.model));
  LK_RETURN_IF_ERROR(CheckContinuations(request));
  LK_ASSIGN_OR_RETURN(std::unique_ptr<LiveRequests::Claim> claim, TakeId(request.tenant, ""));
  EngineRequest base;
  LK_ASSIGN_OR_RETURN(base.attention,
                      ResolveAttention(request.attention, options_.defaults.attention));
  base.max_new_tokens = 0;
  base.prompt_logprobs = 1;  // the most likely token tells whether greedy decoding agrees
  base.deadline = request.deadline;
  base.tenant = request.tenant.name;
  base.tenant_weight = request.tenant.weight;
  ScorePrompts prompts;
  Interrupt interrupt = InterruptOf(request.deadline, request.is_cancelled);
  LK_ASSIGN_OR_RETURN(const TokenList context, TokensOf("context", request.context, interrupt));
  prompts.boundary = context.size();
  int64_t n_prompt_tokens = 0;
  for (size_t i = 0; i < request.continuations.size(); ++i) {
    LK_ASSIGN_OR_RETURN(TokenList joined,
                        TokensOf(absl::StrCat("continuations[", i, "]"),
                                 Joined(request.context, request.continuations[i]), interrupt));
    prompts.boundary = std::min(prompts.boundary, CommonPrefix(context, joined));
    n_prompt_tokens += static_cast<int64_t>(joined.size());
    prompts.prompts.push_back(std::move(joined));
  }
  LK_RETURN_IF_ERROR(CheckBoundary(prompts));
  live_requests_->Charge(request.tenant, n_prompt_tokens);
  auto collector = std::make_shared<ScoreCollector>(prompts.prompts.size(), std::move(claim),
                                                    std::move(callback));
  absl::StatusOr<std::vector<RequestId>> ids =
      SubmitAll(engine_, prompts, base, std::move(collector));
  if (!ids.ok()) live_requests_->Charge(request.tenant, -n_prompt_tokens);
  return ids;
}

}  // namespace lowkey

// TextService::Score computes log-probabilities through prompts that generate nothing.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/request/limits.h"
#include "server/text/text_service.h"

namespace lowkey {
namespace {

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

// Where a text context is cut: its head is tokenized once, its tail again with each continuation.
// A context of few bytes is all tail.
struct ContextCut {
  size_t tail_begin = 0;  // in bytes
  size_t n_head = 0;      // the tokens of the head
};

// No word is so long that a continuation could change a token before the tail.
constexpr size_t kMinTailBytes = 1024;
constexpr int kMaxCutTries = 16;
const EncodeOptions kTailEncoding = {.add_bos = false, .add_eos = false};

bool EndsWith(const TokenList& tokens, const TokenList& tail) {
  return tail.size() < tokens.size() &&
         std::equal(tail.begin(), tail.end(), tokens.end() - static_cast<ptrdiff_t>(tail.size()));
}

// Finds a cut at a space, such that the tail has the same tokens by itself as in `text`, whose
// tokens are given. Some tokenizers put a space before texts, so the tail is also tried without
// its own. Nullopt if there is no such place.
absl::StatusOr<std::optional<ContextCut>> CutContext(const Tokenizer& tokenizer,
                                                     const std::string& text,
                                                     const TokenList& tokens,
                                                     Interrupt& interrupt) {
  if (text.size() <= 2 * kMinTailBytes) return std::optional<ContextCut>(ContextCut());
  EncodeOptions options = kTailEncoding;
  options.interrupt = &interrupt;
  size_t space = text.size() - kMinTailBytes;
  for (int i = 0; i < kMaxCutTries; ++i) {
    space = text.rfind(' ', space);
    if (space == std::string::npos || space < kMinTailBytes) break;
    for (const size_t begin : {space, space + 1}) {
      LK_ASSIGN_OR_RETURN(const TokenList tail, tokenizer.Encode(text.substr(begin), options));
      if (EndsWith(tokens, tail)) {
        return std::optional<ContextCut>(ContextCut{begin, tokens.size() - tail.size()});
      }
    }
    --space;
  }
  return std::optional<ContextCut>();
}

absl::Status CheckBoundary(const std::vector<TokenList>& prompts, size_t boundary) {
  if (boundary == 0) {
    return absl::InvalidArgumentError(
        "context: shares no token with context and continuation together, expected 1 or more");
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].size() > boundary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("continuations[", i, "]: adds no token to the context, expected 1 or more"));
  }
  return absl::OkStatus();
}

// Submits all continuations or none: a refusal cancels those submitted before it.
absl::StatusOr<std::vector<RequestId>> SubmitAll(Engine& engine,
                                                 const std::vector<TokenList>& prompts,
                                                 size_t boundary, const EngineRequest& base,
                                                 std::shared_ptr<ScoreCollector> collector) {
  std::vector<RequestId> ids;
  ids.reserve(prompts.size());  // nothing may throw once a request runs
  for (size_t i = 0; i < prompts.size(); ++i) {
    EngineRequest request = base;
    request.prompt = prompts[i];
    request.prompt_logprobs_from = static_cast<int32_t>(boundary);
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

absl::StatusOr<std::vector<TokenList>> TextService::JoinedTexts(const ScoreRequest& request,
                                                                const TokenList& context,
                                                                Interrupt& interrupt) const {
  const auto& text = std::get<std::string>(request.context);
  LK_ASSIGN_OR_RETURN(const std::optional<ContextCut> found,
                      CutContext(tokenizer_, text, context, interrupt));
  const size_t n = request.continuations.size();
  if (!found.has_value() && text.size() * n > Tokenizer::kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("context: ", text.size(), " bytes that cannot be cut at a space, with ", n,
                     " continuations, expected at most ", Tokenizer::kMaxTextBytes / n, " bytes"));
  }
  const ContextCut cut = found.value_or(ContextCut());
  EncodeOptions options = cut.n_head > 0 ? kTailEncoding : EncodeOptions{.add_eos = false};
  options.interrupt = &interrupt;
  std::vector<TokenList> joined;
  for (size_t i = 0; i < n; ++i) {
    const std::string name = absl::StrCat("continuations[", i, "]");
    const auto& continuation = std::get<std::string>(request.continuations[i]);
    LK_RETURN_IF_ERROR(CheckTextBytes(name, text.size() + continuation.size()));
    LK_ASSIGN_OR_RETURN(
        const TokenList rest,
        Prefixed(name, tokenizer_.Encode(text.substr(cut.tail_begin) + continuation, options)));
    TokenList& tokens = joined.emplace_back();
    tokens.reserve(cut.n_head + rest.size());
    tokens.assign(context.begin(), context.begin() + static_cast<ptrdiff_t>(cut.n_head));
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    LK_RETURN_IF_ERROR(CheckTokens(name, tokens));
    LK_RETURN_IF_ERROR(NewTokens(0, 0, tokens.size()).status());
  }
  return joined;
}

absl::StatusOr<std::vector<TokenList>> TextService::JoinedTokens(const ScoreRequest& request,
                                                                 const TokenList& context) const {
  std::vector<TokenList> joined;
  for (size_t i = 0; i < request.continuations.size(); ++i) {
    const auto& continuation = std::get<TokenList>(request.continuations[i]);
    LK_RETURN_IF_ERROR(CheckTokens(absl::StrCat("continuations[", i, "]"), continuation));
    LK_RETURN_IF_ERROR(NewTokens(0, 0, context.size() + continuation.size()).status());
    TokenList& tokens = joined.emplace_back(context);
    tokens.insert(tokens.end(), continuation.begin(), continuation.end());
  }
  return joined;
}

absl::StatusOr<TextService::ScorePrompts> TextService::MakeScorePrompts(
    const ScoreRequest& request) const {
  Interrupt interrupt = InterruptOf(request.deadline, request.is_cancelled);
  LK_ASSIGN_OR_RETURN(const TokenList context, TokensOf("context", request.context, interrupt));
  ScorePrompts prompts;
  if (std::holds_alternative<std::string>(request.context)) {
    LK_ASSIGN_OR_RETURN(prompts.prompts, JoinedTexts(request, context, interrupt));
  } else {
    LK_ASSIGN_OR_RETURN(prompts.prompts, JoinedTokens(request, context));
  }
  prompts.boundary = context.size();
  for (const TokenList& prompt : prompts.prompts) {
    prompts.boundary = std::min(prompts.boundary, CommonPrefix(context, prompt));
  }
  LK_RETURN_IF_ERROR(CheckBoundary(prompts.prompts, prompts.boundary));
  return prompts;
}

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
  LK_ASSIGN_OR_RETURN(const ScorePrompts prompts, MakeScorePrompts(request));
  int64_t n_prompt_tokens = 0;
  for (const TokenList& prompt : prompts.prompts) {
    n_prompt_tokens += static_cast<int64_t>(prompt.size());
  }
  live_requests_->Charge(request.tenant, n_prompt_tokens);
  auto collector = std::make_shared<ScoreCollector>(prompts.prompts.size(), std::move(claim),
                                                    std::move(callback));
  absl::StatusOr<std::vector<RequestId>> ids =
      SubmitAll(engine_, prompts.prompts, prompts.boundary, base, std::move(collector));
  if (!ids.ok()) live_requests_->Charge(request.tenant, -n_prompt_tokens);
  return ids;
}

}  // namespace lowkey

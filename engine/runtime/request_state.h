#ifndef LOWKEY_ENGINE_RUNTIME_REQUEST_STATE_H_
#define LOWKEY_ENGINE_RUNTIME_REQUEST_STATE_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "engine/attention/attention.h"
#include "engine/attention/selection/selection.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/row_tokens.h"
#include "engine/sampler/sampler.h"
#include "engine/scheduler/forecast.h"

namespace lowkey {

// One of a request's n sequences.
struct ChoiceState {
  SequenceCache cache;
  std::optional<Sampler> sampler;
  std::vector<int32_t> tokens;  // generated
  std::optional<FinishReason> finish_reason;
};

// What the engine's thread keeps of a live request.
class RequestState {
 public:
  RequestState(RequestId id, EngineRequest request, std::unique_ptr<Sink> sink,
               absl::Time submitted);

  // The token of a row: of the prompt, or one that the choice generated.
  int32_t TokenAt(int32_t choice, int64_t position) const;

  // Tokens of it that are there: the next one's position.
  int64_t n_known(int32_t choice) const {
    return static_cast<int64_t>(request.prompt.size() + choices[choice].tokens.size());
  }

  bool WantsPromptLogprob(int64_t position) const {
    return wants_prompt_logprobs() && !is_forked() && position >= request.prompt_logprobs_from &&
           position < static_cast<int64_t>(request.prompt.size());
  }
  bool wants_prompt_logprobs() const { return request.prompt_logprobs.has_value(); }
  // Of the prompt token after the row.
  RowRequest::Given PromptTokenAfter(int64_t row_position) const;
  void AddPromptLogprob(int64_t row_position, SampledToken scored);

  // The prompt is computed: choices 1.. share choice 0's cache. The first time it gives each
  // choice its sampler.
  void Fork(int32_t vocab_size);
  bool is_forked() const { return choices[0].sampler.has_value(); }

  // Bytes of pages and slabs held by all choices, shared ones once.
  int64_t HeldBytes(int64_t page_bytes) const;
  void NotePeak(int64_t page_bytes);
  int64_t held_bytes() const { return held_bytes_; }  // at the last NotePeak
  int32_t n_unfinished() const;
  // All rows are to be computed once more, from nothing.
  void ReleaseCache();

  // The terminal event; unfinished choices get `reason`. Reads the cache: call before ReleaseCache.
  FinalEvent MakeFinalEvent(FinishReason reason, const absl::Status& status,
                            int64_t page_bytes) const;

  const RequestId id;
  EngineRequest request;
  std::unique_ptr<Sink> sink;
  std::vector<ChoiceState> choices;  // one until Fork, then request.n
  std::vector<PromptLogprob> prompt_logprobs;
  int32_t rank = 0;                  // atp: of a principal block, resolved for the model
  Selection selection;               // where the engine chose the mechanism
  std::optional<Forecast> forecast;  // at its submission
  // A step that it shared threw: it is computed alone until all its rows are there again.
  bool is_suspect = false;
  // Begun later it would miss its deadline.
  absl::Time latest_start = absl::InfiniteFuture();
  int32_t n_cached_tokens = 0;  // of the prompt, found in the prefix cache
  const absl::Time submitted;
  std::optional<absl::Time> started, first_token, last_token;

 private:
  AttentionReport MakeReport(int64_t page_bytes) const;

  SequenceCache EmptyCache() const;

  int64_t peak_bytes_ = 0, held_bytes_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_REQUEST_STATE_H_

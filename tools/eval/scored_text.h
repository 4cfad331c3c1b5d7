#ifndef LOWKEY_TOOLS_EVAL_SCORED_TEXT_H_
#define LOWKEY_TOOLS_EVAL_SCORED_TEXT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// Tokens whose last n_scored are predicted from those before them.
struct TextToScore {
  std::vector<int32_t> tokens;
  int64_t n_scored = 0;  // 1..tokens - 1
  int64_t n_shared = 0;  // the tokens with which later texts begin too, at most tokens - n_scored
};

struct ScoredText {
  std::vector<PromptLogprob>
      logprobs;  // of the scored tokens, in order, each with the likeliest one
  FinalEvent event;
};

// Says how a text is read.
struct Reading {
  AttentionOptions attention = {};
  // Gives the scored tokens one by one behind a prompt, as if the model had generated them; else
  // all tokens are a prompt's. Mechanisms may tell the two apart, as atp with exact prefill does.
  bool as_generated = false;
};

// Hands all texts to the engine at once and waits for them. `n_top`: how many of the likeliest
// tokens are named beside each scored one. Errors are those of Engine::Submit and of the first
// failed text.
absl::StatusOr<std::vector<ScoredText>> ScoreTexts(Engine& engine, std::vector<TextToScore> texts,
                                                   int n_top, const Reading& reading);

// What the texts of a measurement cost.
struct EvalCost {
  double seconds = 0;    // the engine's, for prompts alone, added up
  int64_t n_tokens = 0;  // of prompts, without those that were found in the prefix cache
  // Of the largest text at its end, and the same of mechanism standard.
  int64_t cache_bytes = 0, standard_bytes = 0;
  // Counts what one more token reads of the cache at a window's end; 0 where there are no windows.
  int64_t read_bytes = 0;
  int32_t rank = 0;  // atp's, resolved

  void Add(const ScoredText& text);
};

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_EVAL_SCORED_TEXT_H_

#ifndef LOWKEY_BENCH_DRAFTS_DRAFT_BENCH_H_
#define LOWKEY_BENCH_DRAFTS_DRAFT_BENCH_H_

#include "absl/status/status.h"
#include "engine/runtime/engine.h"

namespace lowkey {

struct DraftBenchOptions {
  int n_runs = 5;  // of each figure, with and without drafts in turn; the median is printed
  int n_prompt_tokens = 256;
  int n_new_tokens = 128;
  int n_streams = 16;
};

// Prints tokens per second of decoding with and without drafts by prompt lookup, of one stream and
// of several together, for three kinds of text that any model can be made to give:
//   loop       every draft is right: the most that drafts can gain
//   noise      every place was seen before and almost every draft is wrong: the most that they cost
//   no repeat  hardly any token was seen before: the cost of looking
// INTERNAL when a token differs between the two.
absl::Status BenchDrafts(Engine& engine, const DraftBenchOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_BENCH_DRAFTS_DRAFT_BENCH_H_

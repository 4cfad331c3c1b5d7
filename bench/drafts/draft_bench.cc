#include "bench/drafts/draft_bench.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/drafts/streams.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// The bias that leaves the model no other token.
constexpr float kOnly = 100;
constexpr int kNoiseTokens = 64;

struct RunResult {
  double tokens_per_second = 0;
  int64_t n_drafted = 0, n_accepted = 0;
  std::vector<std::vector<int32_t>> tokens;  // by stream
};

absl::StatusOr<RunResult> Run(Engine& engine, const EngineRequest& request, int n_streams) {
  LK_ASSIGN_OR_RETURN(std::vector<StreamOutcome> outcomes, RunStreams(engine, request, n_streams));
  RunResult result;
  int64_t longest_us = 1;
  for (StreamOutcome& o : outcomes) {
    longest_us = std::max(longest_us, o.event.timings.decode_us);
    result.n_drafted += o.event.n_drafted_tokens;
    result.n_accepted += o.event.n_accepted_tokens;
    result.tokens.push_back(std::move(o.tokens));
  }
  result.tokens_per_second =
      n_streams * (request.max_new_tokens - 1) * 1e6 / static_cast<double>(longest_us);
  return result;
}

EngineRequest RequestOf(const std::string& text, const DraftBenchOptions& options,
                        int32_t vocab_size) {
  EngineRequest r;
  r.max_new_tokens = options.n_new_tokens;
  r.prompt.resize(options.n_prompt_tokens);
  const int32_t n_kinds = text == "noise" ? std::min(kNoiseTokens, vocab_size) : vocab_size;
  for (int i = 0; i < options.n_prompt_tokens; ++i) r.prompt[i] = (i * 7919 + 3) % n_kinds;
  if (text == "loop") {
    r.sampling.logit_bias = {{5, kOnly}};
    return r;
  }
  r.sampling.temperature = 2;
  if (text == "noise") {
    for (int32_t t = 0; t < n_kinds; ++t) r.sampling.logit_bias.emplace_back(t, kOnly);
  }
  return r;
}

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

absl::Status PrintText(Engine& engine, const DraftBenchOptions& options, const std::string& text,
                       int n_streams) {
  EngineRequest request = RequestOf(text, options, engine.config().vocab_size);
  std::vector<double> rates[2];
  RunResult last[2];
  for (int run = -1; run < options.n_runs; ++run) {  // the first one warms caches and clocks
    for (const DraftMode mode : {DraftMode::kOff, DraftMode::kLookup}) {
      request.draft = mode;
      const int i = static_cast<int>(mode);
      LK_ASSIGN_OR_RETURN(last[i], Run(engine, request, n_streams));
      if (run >= 0) rates[i].push_back(last[i].tokens_per_second);
    }
    if (last[0].tokens != last[1].tokens) {
      return absl::InternalError(absl::StrCat(text, ": tokens with drafts differ"));
    }
  }
  const double off = Median(rates[0]), lookup = Median(rates[1]);
  std::printf("%-10s %7d %10.1f %10.1f %8.2f %10lld of %lld\n", text.c_str(), n_streams, off,
              lookup, lookup / off, static_cast<long long>(last[1].n_accepted),
              static_cast<long long>(last[1].n_drafted));
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchDrafts(Engine& engine, const DraftBenchOptions& options) {
  std::printf("%-10s %7s %10s %10s %8s %10s\n", "text", "streams", "off", "lookup", "ratio",
              "accepted");
  for (const char* text : {"loop", "noise", "no repeat"}) {
    for (const int n_streams : {1, options.n_streams}) {
      LK_RETURN_IF_ERROR(PrintText(engine, options, text, n_streams));
    }
  }
  return absl::OkStatus();
}

}  // namespace lowkey

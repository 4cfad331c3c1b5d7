#include "engine/runtime/request_state.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/clock.h"
#include "engine/config/attention_option_table.h"

namespace lowkey {

RequestState::RequestState(RequestId id, EngineRequest r, std::unique_ptr<Sink> s,
                           absl::Time submitted)
    : id(id), request(std::move(r)), sink(std::move(s)), choices(1), submitted(submitted) {
  choices[0].cache = EmptyCache();
}

SequenceCache RequestState::EmptyCache() const {
  SequenceCache cache;
  cache.options = request.attention;
  cache.n_prompt_tokens = n_prompt_tokens();
  // The last token generated is never fed.
  cache.n_final_tokens = cache.n_prompt_tokens + std::max(0, request.max_new_tokens - 1);
  return cache;
}

std::vector<int32_t> RequestState::FirstTokens(int64_t n) const {
  std::vector<int32_t> tokens = request.prompt;
  tokens.insert(tokens.end(), choices[0].tokens.begin(), choices[0].tokens.end());
  tokens.resize(n);
  return tokens;
}

int32_t RequestState::TokenAt(int32_t choice, int64_t position) const {
  return position < n_prompt_tokens() ? request.prompt[position]
                                      : choices[choice].tokens[position - n_prompt_tokens()];
}

RowRequest::Given RequestState::PromptTokenAfter(int64_t row_position) const {
  return {request.prompt[row_position + 1], *request.prompt_logprobs};
}

void RequestState::AddPromptLogprob(int64_t row_position, SampledToken scored) {
  prompt_logprobs.push_back({static_cast<int32_t>(row_position + 1),
                             {scored.token, *scored.logprob},
                             std::move(scored.top_logprobs)});
}

void RequestState::Fork(int32_t vocab_size) {
  const bool is_first = !is_forked();
  choices.resize(request.n);
  for (int32_t c = 0; c < request.n; ++c) {
    if (c > 0) choices[c].cache = choices[0].cache;
    if (!is_first) continue;
    choices[c].sampler.emplace(request.sampling, c, vocab_size, request.prompt);
    if (request.constraint != nullptr) {
      choices[c].sampler->Constrain(first_constraint_ != nullptr ? first_constraint_->Copy()
                                                                 : request.constraint->Begin());
    }
  }
  first_constraint_.reset();
}

MaskProgress RequestState::PrepareMask(int32_t choice, int64_t most_work) {
  if (is_forked()) return choices[choice].sampler->constraint()->Prepare(most_work);
  if (first_constraint_ == nullptr) first_constraint_ = request.constraint->Begin();
  return first_constraint_->Prepare(most_work);
}

int64_t RequestState::HeldBytes() const {
  int64_t total = 0;
  const SequenceCache& first = choices[0].cache;
  std::vector<const Slab*> first_slabs;
  for (const PageHandle& page : first.pages) total += page ? page.size_bytes() : 0;
  first.state.VisitSlabs([&](const Slab& slab) {
    total += slab.size_bytes();
    if (choices.size() > 1) first_slabs.push_back(&slab);
  });
  // Forks share most of what they hold with the first choice, at the same place; some of the rest
  // with each other.
  std::set<MemoryId> seen;
  for (size_t c = 1; c < choices.size(); ++c) {
    const SequenceCache& cache = choices[c].cache;
    for (size_t i = 0; i < cache.pages.size(); ++i) {
      const PageHandle& page = cache.pages[i];
      if (!page) continue;
      const bool is_first =
          i < first.pages.size() && first.pages[i] && first.pages[i].id() == page.id();
      if (!is_first && seen.insert(page.id()).second) total += page.size_bytes();
    }
    size_t n_slabs = 0;
    cache.state.VisitSlabs([&](const Slab& slab) {
      const size_t i = n_slabs++;
      const bool is_first = i < first_slabs.size() && first_slabs[i] == &slab;
      if (!is_first && seen.insert(IdOf(slab)).second) total += slab.size_bytes();
    });
  }
  return total;
}

void RequestState::NotePeak() {
  held_bytes_ = HeldBytes();
  peak_bytes_ = std::max(peak_bytes_, held_bytes_);
}

int32_t RequestState::n_unfinished() const {
  const auto n = std::count_if(choices.begin(), choices.end(),
                               [](const ChoiceState& c) { return !c.finish_reason.has_value(); });
  return static_cast<int32_t>(n);
}

std::optional<absl::Duration> RequestState::MeanGap() const {
  int64_t n_gaps = 0;
  for (const ChoiceState& c : choices) {
    n_gaps = std::max(n_gaps, static_cast<int64_t>(c.tokens.size()) - 1);
  }
  if (n_gaps < 1 || !first_token.has_value()) return std::nullopt;
  return (*last_token - *first_token) / n_gaps;
}

void RequestState::ReleaseCache() {
  for (ChoiceState& c : choices) c.cache = EmptyCache();
  held_bytes_ = 0;
  if (!is_forked()) prompt_logprobs.clear();
}

AttentionReport RequestState::MakeReport(const AttentionMechanism& mechanism,
                                         int64_t page_bytes) const {
  AttentionReport report;
  report.mechanism = request.attention.mechanism;
  report.is_approximate = is_approximate;
  report.label = AttentionLabel(request.attention);
  report.reason = selection.reason;
  report.crossovers = selection.crossovers;
  report.cache_bytes = HeldBytes();
  report.peak_cache_bytes = std::max(peak_bytes_, report.cache_bytes);
  const int64_t shared_pages = n_prompt_tokens() / kPageTokens;
  std::vector<const SequenceCache*> sequences;
  int64_t n_pages = 0;
  for (const ChoiceState& c : choices) {
    const int64_t own = PagesFor(c.cache.n_tokens);
    n_pages += &c == &choices[0] ? own : std::max<int64_t>(0, own - shared_pages);
    sequences.push_back(&c.cache);
  }
  const SequenceReport held = mechanism.Report(sequences);
  report.rank = held.rank;
  report.n_compressed_blocks = held.n_compressed_blocks;
  report.n_state_tokens = held.n_state_tokens;
  report.n_coded_tokens = held.n_coded_tokens;
  report.standard_cache_bytes = n_pages * page_bytes;
  return report;
}

FinalEvent RequestState::MakeFinalEvent(FinishReason reason, const absl::Status& status,
                                        const AttentionMechanism& mechanism,
                                        int64_t page_bytes) const {
  FinalEvent event;
  event.status = status;
  for (int32_t c = 0; c < request.n; ++c) {
    const bool exists = c < static_cast<int32_t>(choices.size());
    event.finish_reasons.push_back(exists ? choices[c].finish_reason.value_or(reason) : reason);
    event.n_generated.push_back(exists ? static_cast<int32_t>(choices[c].tokens.size()) : 0);
  }
  event.n_prompt_tokens = static_cast<int32_t>(n_prompt_tokens());
  event.n_cached_tokens = n_cached_tokens;
  event.n_drafted_tokens = n_drafted_tokens;
  event.n_accepted_tokens = n_accepted_tokens;
  event.seed = request.sampling.seed;
  const absl::Time now = SteadyNow();
  const absl::Time start = started.value_or(now);
  event.timings.queue_us = absl::ToInt64Microseconds(start - submitted);
  const absl::Time first = first_token.value_or(now);
  event.timings.prefill_us = absl::ToInt64Microseconds(first - start);
  if (first_token.has_value()) {
    event.timings.ttft_us = absl::ToInt64Microseconds(first - submitted);
    event.timings.decode_us = absl::ToInt64Microseconds(last_token.value_or(first) - first);
  }
  event.attention = MakeReport(mechanism, page_bytes);
  return event;
}

}  // namespace lowkey

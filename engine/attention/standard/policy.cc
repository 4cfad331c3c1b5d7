#include "engine/attention/standard/policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/attention/pages/quantized_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {

bool IsQuantized(const AttentionOptions& options) {
  return options.mechanism == Mechanism::kStandard &&
         options.standard.storage != CacheStorage::kDtype;
}

bool CodesPrefixes(const AttentionOptions& options) {
  return options.mechanism == Mechanism::kStandard && !options.standard.prefix_storage.is_exact();
}

AttentionWork SoftmaxWork(const AttentionGeometry& g, int64_t n_tokens) {
  const auto n = static_cast<double>(n_tokens);
  const double seen = std::min(n, static_cast<double>(g.sliding_window.value_or(n_tokens)));
  const auto pair = static_cast<double>(2 * g.n_layers * g.n_heads * g.head_dim);
  return {pair * seen * (n - seen / 2), pair * seen};
}

absl::Status StandardPolicy::CheckAvailable(const AttentionOptions& options) const {
  const CacheStorage storage = options.standard.storage;
  if (IsQuantized(options) && CodeBits(storage) < 4 && context_.place != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("attention.cache_storage: ", std::string(NameOf(storage)),
                     ", expected dtype, int8 or int4 on a device"));
  }
  if (!CodesPrefixes(options)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "attention.prefix_storage: ", PrefixStorageString(options.standard.prefix_storage),
      context_.place != nullptr
          ? ", expected exact on a device"
          : ", expected exact: the model has no calibration (lowkey calibrate makes one)"));
}

int64_t StandardPolicy::BoundBytes(const AttentionOptions& options,
                                   const SequenceBound& bound) const {
  const AttentionGeometry& g = context_.geometry;
  const int64_t n_pages = PagesFor(bound.n_tokens);
  if (!IsQuantized(options)) return n_pages * PageBytes(g);
  // A step's rows may begin with the last token of a page.
  const int64_t n_open = std::min(n_pages, 1 + PagesFor(bound.max_step_rows - 1));
  return n_open * PageBytes(g) +
         bound.n_tokens / kPageTokens * QuantizedPageBytes(g, options.standard.storage);
}

absl::Status StandardPolicy::TakeClosedPages(const Segment& segment, int64_t page_bytes) const {
  auto& closed = segment.sequence->state.As<StandardState>().closed_pages;
  // Pages of a plan that was never carried out hold nothing.
  closed.resize(segment.first_position / kPageTokens);
  const auto end = static_cast<size_t>((segment.first_position + segment.n_rows) / kPageTokens);
  while (closed.size() < end) {
    LK_ASSIGN_OR_RETURN(auto slab, context_.cache->AllocateSlab(page_bytes));
    closed.push_back(std::move(slab));
  }
  return absl::OkStatus();
}

AttentionWork StandardPolicy::Work(const AttentionOptions&, int64_t n_tokens) const {
  return SoftmaxWork(context_.geometry, n_tokens);
}

void StandardPolicy::Advance(SequenceCache& sequence, int64_t n_rows) {
  const int64_t first = sequence.n_tokens / kPageTokens;
  sequence.n_tokens += n_rows;
  if (!IsQuantized(sequence.options)) return;
  for (int64_t page = first; page < sequence.n_tokens / kPageTokens; ++page) {
    sequence.pages[page] = {};
  }
}

std::optional<SequenceCache> StandardPolicy::Prefix(const SequenceCache& sequence, int64_t,
                                                    int64_t n_tokens) const {
  const int64_t n_pages = n_tokens / kPageTokens;
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  if (IsQuantized(sequence.options)) {
    auto closed = FirstPages(sequence.state.As<StandardState>().closed_pages, 0, n_pages);
    if (!closed.has_value()) return std::nullopt;
    prefix.state.As<StandardState>().closed_pages = *std::move(closed);
    prefix.pages.resize(n_pages);
    return prefix;
  }
  auto pages = FirstPages(sequence.pages, 0, n_pages);
  if (!pages.has_value()) return std::nullopt;
  prefix.pages = *std::move(pages);
  return prefix;
}

void StandardPolicy::AppendPart(const SequenceCache& from, int64_t begin, int64_t end,
                                SequenceCache& prefix) const {
  const int64_t first_page = begin / kPageTokens, end_page = end / kPageTokens;
  if (IsQuantized(from.options)) {
    AppendElements(from.state.As<StandardState>().closed_pages, first_page, end_page,
                   prefix.state.As<StandardState>().closed_pages);
  }
  AppendElements(from.pages, first_page, end_page, prefix.pages);
  prefix.n_tokens += end - begin;
}

}  // namespace lowkey

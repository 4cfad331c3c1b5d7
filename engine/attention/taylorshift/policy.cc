#include "engine/attention/taylorshift/policy.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// The temperature of a model that brings none.
constexpr float kDefaultTau = 1.0f;

}  // namespace

TaylorShiftPolicy::TaylorShiftPolicy(const AttentionContext& context)
    : context_(context), shape_(context.geometry) {
  const AttentionGeometry& g = context_.geometry;
  if (context.weights != nullptr) {
    tau_ = context.weights->tau;
    tau_window_ = context.weights->tau_window;
    window_tokens_ = context.weights->window_tokens;
    trained_variant_ = context.weights->trained_variant;
  }
  if (tau_.empty()) tau_.assign(g.n_layers * g.n_heads, kDefaultTau);
  if (tau_window_.empty()) tau_window_ = tau_;
}

absl::Status TaylorShiftPolicy::CheckAvailable(const AttentionOptions& options) const {
  const TaylorVariant variant = options.taylorshift.variant;
  if (trained_variant_.has_value() && variant != TaylorVariant::kAuto &&
      variant != *trained_variant_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "attention.variant: ", std::string(NameOf(variant)), ", expected ",
        std::string(NameOf(*trained_variant_)), ", which this model's weights were trained for"));
  }
  return RefuseSlidingWindow(context_.geometry, id());
}

TaylorTemperatures TaylorShiftPolicy::TemperaturesAt(int64_t layer) const {
  const int64_t n_heads = context_.geometry.n_heads;
  return {absl::MakeConstSpan(tau_).subspan(layer * n_heads, n_heads),
          absl::MakeConstSpan(tau_window_).subspan(layer * n_heads, n_heads)};
}

int64_t TaylorShiftPolicy::FirstNearPage(int64_t page) const {
  return window_tokens_ == 0 ? page + 1 : std::max<int64_t>(0, EndStatePage(page));
}

int64_t TaylorShiftPolicy::BoundBytes(const AttentionOptions& options,
                                      const SequenceBound& bound) const {
  const AttentionGeometry& g = context_.geometry;
  const auto switch_tokens = SwitchTokens(options);
  const int64_t all_pages = PagesFor(bound.n_tokens);
  if (!switch_tokens.has_value() ||
      std::max(bound.n_tokens, bound.n_final_tokens) <= *switch_tokens) {
    return all_pages * PageBytes(g);
  }
  // The step that builds the state holds every page; later steps hold a whole chunk and their rows.
  const int64_t n_pages = std::min(all_pages, PagesFor(*switch_tokens + bound.max_step_rows));
  return n_pages * PageBytes(g) + TaylorSlabBytes(g);
}

int64_t TaylorShiftPolicy::HeldBytes(const AttentionOptions& options, int64_t n_tokens) const {
  const AttentionGeometry& g = context_.geometry;
  const auto switch_tokens = SwitchTokens(options);
  if (!switch_tokens.has_value() || n_tokens - 1 <= *switch_tokens) {
    return BoundBytes(options, {1, n_tokens, 1});
  }
  // Advance keeps the page of the token before the last, and the window's before it.
  const int64_t n_pages = PagesFor(n_tokens) - EndStatePage((n_tokens - 2) / kPageTokens);
  return n_pages * PageBytes(g) + TaylorSlabBytes(g);
}

int64_t TaylorShiftPolicy::SharedBytes(const AttentionOptions& options, int64_t n_prompt_tokens,
                                       int64_t n_tokens) const {
  const int64_t n_whole = n_prompt_tokens / kPageTokens, page_bytes = PageBytes(context_.geometry);
  const auto switch_tokens = SwitchTokens(options);
  if (!switch_tokens.has_value() || n_tokens - 1 <= *switch_tokens) return n_whole * page_bytes;
  const int64_t n_state_pages = EndStatePage((n_tokens - 2) / kPageTokens);
  const bool shares_state = n_prompt_tokens > *switch_tokens &&
                            EndStatePage((n_prompt_tokens - 1) / kPageTokens) == n_state_pages;
  return std::max<int64_t>(0, n_whole - n_state_pages) * page_bytes +
         (shares_state ? TaylorSlabBytes(context_.geometry) : 0);
}

AttentionWork TaylorShiftPolicy::Work(const AttentionOptions& options, int64_t n_tokens) const {
  const AttentionGeometry& g = context_.geometry;
  const int64_t n_direct = std::min(n_tokens, SwitchTokens(options).value_or(n_tokens));
  const auto direct = static_cast<double>(n_direct);
  const auto recurrent = static_cast<double>(n_tokens - n_direct);
  const auto pair = static_cast<double>(g.n_layers * g.n_heads * (g.key_dim() + g.head_dim));
  const AttentionWork before = {pair * direct * direct / 2, pair * direct};
  if (n_tokens == n_direct) return before;
  const double state = static_cast<double>(shape_.n_features * (g.head_dim + 1) * g.n_layers);
  const double read = state * static_cast<double>(g.n_heads);
  const double fold = state * static_cast<double>(g.n_kv_heads);
  // A row also sees the window and half of its own chunk, and the first tokens are folded too.
  const double row = read + fold + pair * static_cast<double>(window_tokens_ + kPageTokens / 2);
  return {before.prefill + recurrent * row + direct * fold, row};
}

TaylorShiftPolicy::Round& TaylorShiftPolicy::RoundAt(int64_t index) {
  if (index == static_cast<int64_t>(rounds_.size())) rounds_.emplace_back();
  if (index == n_rounds_) {
    rounds_[index].folds.clear();
    rounds_[index].reads.clear();
    ++n_rounds_;
  }
  return rounds_[index];
}

// Returns the pages that the state holds once rows before `end` are computed, none of which reads
// it. Where the sequence may pass its switch, the last part of the way there folds two pages for
// each that it fills, so that no step has to fold them all.
int64_t TaylorShiftPolicy::PagesToFold(const SequenceCache& sequence, int64_t end) const {
  const auto switch_tokens = SwitchTokens(sequence.options);
  if (!switch_tokens.has_value() || sequence.n_final_tokens <= *switch_tokens) return 0;
  const int64_t n_left = *switch_tokens / kPageTokens - std::min(end, *switch_tokens) / kPageTokens;
  return std::max<int64_t>(0, EndStatePage(*switch_tokens / kPageTokens) - 2 * n_left);
}

// Takes the sums; the sequence's own copy if this step folds into them.
absl::Status TaylorShiftPolicy::TakeState(TaylorState& state, int64_t last_page) const {
  const bool folds = last_page * kPageTokens > state.n_folded_tokens;
  if (state.sums != nullptr && !folds) return absl::OkStatus();
  return context_.cache->MakeOwn(TaylorSlabBytes(context_.geometry), state.sums);
}

absl::Status TaylorShiftPolicy::PlanSegment(int32_t segment_index, const Segment& segment) {
  SequenceCache& sequence = *segment.sequence;
  TaylorVariant& variant = sequence.options.taylorshift.variant;
  if (variant == TaylorVariant::kAuto) {
    variant = trained_variant_.value_or(TaylorVariant::kNormalized);
  }
  LK_RETURN_IF_ERROR(TakePages(segment, PageBytes(context_.geometry), *context_.cache));
  const int64_t begin = segment.first_position, end = begin + segment.n_rows;
  const auto switch_tokens = SwitchTokens(sequence.options);
  const int64_t direct_end = std::clamp(switch_tokens.value_or(end), begin, end);
  if (direct_end > begin) {
    RoundAt(0).reads.push_back({segment_index, begin, direct_end - begin, 0});
  }
  auto& state = sequence.state.As<TaylorState>();
  int64_t n_folded = state.n_folded_tokens / kPageTokens;
  if (direct_end == end) {
    const int64_t n_pages = PagesToFold(sequence, end);
    if (n_pages <= n_folded) return absl::OkStatus();
    LK_RETURN_IF_ERROR(TakeState(state, n_pages));
    RoundAt(0).folds.push_back({segment_index, n_folded, n_pages});
    return absl::OkStatus();
  }
  LK_RETURN_IF_ERROR(TakeState(state, EndStatePage((end - 1) / kPageTokens)));
  int64_t row = direct_end;
  for (int64_t index = 0; row < end; ++index) {
    const int64_t page = row / kPageTokens, n_state = EndStatePage(page);
    if (n_folded < n_state) RoundAt(index).folds.push_back({segment_index, n_folded, n_state});
    n_folded = n_state;
    const int64_t page_end = std::min(end, (page + 1) * kPageTokens);
    RoundAt(index).reads.push_back({segment_index, row, page_end - row, n_state * kPageTokens});
    row = page_end;
  }
  return absl::OkStatus();
}

absl::Status TaylorShiftPolicy::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  n_rounds_ = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    LK_RETURN_IF_ERROR(PlanSegment(static_cast<int32_t>(i), segments[i]));
  }
  return absl::OkStatus();
}

// The state takes tokens in and never gives them back: a step may fold only what its first row
// folds too. Pages that Advance has seen in part are folded by it in full.
int64_t TaylorShiftPolicy::RevocableRows(const SequenceCache& sequence, int64_t n_rows) const {
  const int64_t first = sequence.n_tokens, end = first + n_rows;
  const auto switch_tokens = SwitchTokens(sequence.options);
  const bool is_direct = !switch_tokens.has_value() || end <= *switch_tokens;
  if (is_direct && PagesToFold(sequence, end) == PagesToFold(sequence, first + 1)) return n_rows;
  return std::clamp<int64_t>(kPageTokens - 1 - first % kPageTokens, 1, n_rows);
}

void TaylorShiftPolicy::Advance(SequenceCache& sequence, int64_t n_rows) {
  sequence.n_tokens += n_rows;
  const auto switch_tokens = SwitchTokens(sequence.options);
  if (!switch_tokens.has_value()) return;
  auto& state = sequence.state.As<TaylorState>();
  if (sequence.n_tokens <= *switch_tokens) {
    const int64_t n_folded = PagesToFold(sequence, sequence.n_tokens) * kPageTokens;
    state.n_folded_tokens = std::max(state.n_folded_tokens, n_folded);
    return;
  }
  const int64_t first_kept = EndStatePage((sequence.n_tokens - 1) / kPageTokens);
  for (int64_t page = state.n_state_tokens / kPageTokens; page < first_kept; ++page) {
    sequence.pages[page] = {};
  }
  state.n_state_tokens = state.n_folded_tokens = first_kept * kPageTokens;
}

std::optional<SequenceCache> TaylorShiftPolicy::Prefix(const SequenceCache& sequence,
                                                       int64_t n_computed, int64_t n_tokens) const {
  const auto switch_tokens = SwitchTokens(sequence.options);
  const auto& held = sequence.state.As<TaylorState>();
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  const int64_t end_page = n_tokens / kPageTokens;
  auto& state = prefix.state.As<TaylorState>();
  if (switch_tokens.has_value() && n_tokens > *switch_tokens) {
    const int64_t n_state_pages = EndStatePage((n_computed - 1) / kPageTokens);
    if (n_state_pages > EndStatePage(end_page)) return std::nullopt;
    state.sums = held.sums;
    state.n_state_tokens = state.n_folded_tokens = n_state_pages * kPageTokens;
  }
  auto pages = FirstPages(sequence.pages, state.n_state_tokens / kPageTokens, end_page);
  if (!pages.has_value()) return std::nullopt;
  prefix.pages = *std::move(pages);
  return prefix;
}

SequenceReport TaylorShiftPolicy::Report(absl::Span<const SequenceCache* const> sequences) const {
  SequenceReport report;
  for (const SequenceCache* s : sequences) {
    report.n_state_tokens =
        std::max(report.n_state_tokens, s->state.As<TaylorState>().n_state_tokens);
  }
  return report;
}

}  // namespace lowkey

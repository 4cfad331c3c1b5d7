#include "engine/attention/atp/policy.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "engine/attention/atp/input_pages.h"
#include "engine/attention/pages/column_pages.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/principal_codes.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"

namespace lowkey {
namespace {

// Returns the number of blocks that merged block `number` stands for.
int64_t MergedBlocks(int64_t number) { return (number + 1) & -(number + 1); }

// Returns the most blocks held at once. Merged: one for each bit of the number of far blocks, and
// those that are not far yet.
int64_t MostBlocks(const AtpOptions& o, const SequenceBound& bound) {
  const int64_t n = bound.n_tokens / o.block_tokens;
  if (!o.merge) return n;
  const int64_t far = std::bit_width(static_cast<uint64_t>(n));
  return std::min(n, far + o.window_blocks + bound.max_step_rows / o.block_tokens + 1);
}

// Returns the most pages of inputs that are held: the open block's and the step's.
int64_t MostInputPages(const AtpOptions& o, const SequenceBound& bound) {
  if (o.basis != AtpBasis::kInput) return 0;
  return std::min(PagesFor(bound.n_tokens),
                  o.block_tokens / kPageTokens + PagesFor(bound.max_step_rows) + 1);
}

// Returns how many of the first n_pages pages a sequence holds while the last of n_tokens is
// computed: the near ones, and the sinks'.
int64_t NearPages(const AtpOptions& o, int64_t n_tokens, int64_t n_pages) {
  const int64_t last = std::max<int64_t>(0, n_tokens - 2);  // the last that Advance has seen
  const int64_t first_near =
      std::max<int64_t>(0, last / o.block_tokens - o.window_blocks) * o.block_tokens / kPageTokens;
  const int64_t n_sink_pages = o.sinks > 0 && first_near > 0 ? std::min<int64_t>(1, n_pages) : 0;
  return std::max<int64_t>(0, n_pages - first_near) + n_sink_pages;
}

// Drops the blocks of a plan that was never carried out: later plans must not take them for
// compressed.
void DropUnfilledBlocks(const Segment& segment) {
  auto& blocks = segment.sequence->state.As<AtpState>().blocks;
  const int64_t n_filled = segment.first_position / segment.sequence->options.atp.block_tokens;
  if (static_cast<int64_t>(blocks.size()) > n_filled) blocks.resize(n_filled);
}

}  // namespace

int64_t FirstNearBlock(const SequenceCache& sequence, int64_t position) {
  const AtpOptions& o = sequence.options.atp;
  if (o.prefill == AtpPrefill::kExact && position < sequence.n_prompt_tokens) return 0;
  return std::max<int64_t>(0, position / o.block_tokens - o.window_blocks);
}

AtpPolicy::AtpPolicy(const AttentionContext& context)
    : context_(context),
      index_(context.codes == nullptr ? std::nullopt
                                      : std::optional<TokenIndex>(std::in_place, context.geometry,
                                                                  context.codes->heads)) {}

AttentionOptions AtpPolicy::Resolve(const AttentionOptions& options) const {
  AttentionOptions resolved = options;
  resolved.atp = ResolveAim(options.atp, index_.has_value() && context_.place == nullptr);
  return resolved;
}

// All singular values of each layer's block are found in one step, which waits for them.
constexpr int64_t kMaxEntropyValues = 512;

absl::Status AtpPolicy::CheckAvailable(const AttentionOptions& options) const {
  LK_RETURN_IF_ERROR(RefuseSlidingWindow(context_.geometry, id()));
  if (options.atp.basis == AtpBasis::kCalibrated) {
    if (index_.has_value()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        "attention.basis: calibrated, expected layer, kv or input: the model has no calibration "
        "(lowkey calibrate makes one)");
  }
  const int64_t n_columns =
      ShapeOf(context_.geometry, options.atp).n_basis_columns(context_.geometry);
  const int64_t n_components = std::min<int64_t>(options.atp.block_tokens, n_columns);
  if (std::holds_alternative<RankEntropy>(options.atp.rank) && n_components > kMaxEntropyValues) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention.rank: entropy of ", n_components, " singular values a block, expected at most ",
        kMaxEntropyValues, ": a smaller block_tokens, or basis kv"));
  }
  return absl::OkStatus();
}

int64_t AtpPolicy::BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const {
  const AtpOptions& o = options.atp;
  const int64_t block_pages = o.block_tokens / kPageTokens;
  // The sinks' page, the window, and a step's rows from the last token of a block on.
  const int64_t near_pages = (o.sinks > 0 ? 1 : 0) + o.window_blocks * block_pages +
                             PagesFor(o.block_tokens - 1 + bound.max_step_rows);
  int64_t n_pages = std::min(PagesFor(bound.n_tokens), near_pages);
  if (o.prefill == AtpPrefill::kExact) {
    n_pages = std::max(n_pages, PagesFor(std::min(bound.n_prompt_tokens + 1, bound.n_tokens)));
  }
  const PrincipalShape shape = ShapeOf(context_.geometry, o);
  return n_pages * PageBytes(context_.geometry) +
         MostInputPages(o, bound) * InputPageBytes(context_.geometry) +
         MostBlocks(o, bound) * shape.SlabBytes(context_.geometry);
}

int64_t AtpPolicy::HeldBytes(const AttentionOptions& options, int64_t n_tokens) const {
  const AtpOptions& o = options.atp;
  const SequenceBound bound = {1, n_tokens, 1};
  const int64_t n_pages = NearPages(o, n_tokens, PagesFor(n_tokens));
  return n_pages * PageBytes(context_.geometry) +
         MostInputPages(o, bound) * InputPageBytes(context_.geometry) +
         MostBlocks(o, bound) * ShapeOf(context_.geometry, o).SlabBytes(context_.geometry);
}

// Shared are the prompt's whole pages, as far as they are held, and its whole blocks.
int64_t AtpPolicy::SharedBytes(const AttentionOptions& options, int64_t n_prompt_tokens,
                               int64_t n_tokens) const {
  const AtpOptions& o = options.atp;
  return NearPages(o, n_tokens, n_prompt_tokens / kPageTokens) * PageBytes(context_.geometry) +
         MostBlocks(o, {1, n_prompt_tokens, 1}) *
             ShapeOf(context_.geometry, o).SlabBytes(context_.geometry);
}

// Far blocks without the copies of their tokens, and the copies that are chosen; blocks of the
// window are not read yet.
int64_t AtpPolicy::ReadBytes(const AttentionOptions& options, int64_t n_tokens) const {
  const AttentionGeometry& g = context_.geometry;
  const AtpOptions& o = options.atp;
  const PrincipalShape shape = ShapeOf(g, o);
  const int64_t n_blocks = MostBlocks(o, {1, n_tokens, 1});
  const int64_t n_far_blocks = std::max<int64_t>(0, n_blocks - o.window_blocks);
  const int64_t n_chosen = std::min<int64_t>(o.refine_tokens, n_far_blocks * shape.n_tokens);
  const int64_t heads = g.n_layers * g.n_kv_heads;
  const int64_t copies = shape.KeptBytes(g);
  return HeldBytes(options, n_tokens) - n_blocks * shape.SlabBytes(g) +
         n_far_blocks * (shape.SlabBytes(g) - heads * copies) +
         (copies > 0 ? n_chosen * heads * shape.KeptTokenBytes(g) : 0);
}

AttentionWork AtpPolicy::Work(const AttentionOptions& options, int64_t n_tokens) const {
  const AttentionGeometry& g = context_.geometry;
  const AtpOptions& o = options.atp;
  const PrincipalShape shape = ShapeOf(g, o);
  const auto n = static_cast<double>(n_tokens);
  const auto block = static_cast<double>(o.block_tokens);
  const auto heads = static_cast<double>(g.n_layers * g.n_heads);
  // On average the open block is half full.
  const double near = std::min(n, o.sinks + (o.window_blocks + 0.5) * block);
  const double far = n - near;
  const auto rank = static_cast<double>(shape.rank), d = static_cast<double>(g.head_dim);
  // The cost of scores and values of the principal keys, and of U there and back (Eq. 7).
  double far_blocks = far / block;
  if (o.merge) far_blocks = std::log2(1 + far_blocks);
  // Refined tokens are read whole besides; a calibrated index may leave some out.
  const double refined = std::min(far, static_cast<double>(o.refine_tokens));
  double far_work =
      heads * 2 *
      (rank * (far_blocks * d + (o.readout == AtpReadout::kExact ? far : 0)) + refined * d);
  if (shape.is_calibrated()) {
    const double components = index_->MeanKeyComponents() + index_->MeanValueComponents();
    far_work = heads * (components * (far + d) + 2 * refined * d);
  }
  AttentionWork work;
  work.decode = heads * 2 * near * d + far_work;
  const auto columns = static_cast<double>(shape.n_basis_columns(g));
  const double bases = static_cast<double>(g.n_layers * shape.n_bases(g));
  const double compress =
      bases * 2 * block * (shape.is_calibrated() ? d * d : columns * std::min(block, columns));
  const double exact = heads * n * n * d;
  // A block is merged once, on average, in every head.
  const double rows = 2 * rank + 1, width = 2 * d;
  const double kv_heads = static_cast<double>(g.n_layers * g.n_kv_heads);
  const double merge = o.merge ? kv_heads * 2 * rows * width * std::min(rows, width) : 0;
  work.prefill =
      (o.prefill == AtpPrefill::kExact ? exact : n * (work.decode + near * heads * d) / 2) +
      n / block * (compress + merge);
  return work;
}

absl::Status AtpPolicy::PlanBlocks(int32_t segment_index, const Segment& segment) {
  SequenceCache& sequence = *segment.sequence;
  const AtpOptions& o = sequence.options.atp;
  const PrincipalShape shape = ShapeOf(context_.geometry, o);
  const int64_t n_closed = (segment.first_position + segment.n_rows) / o.block_tokens;
  DropUnfilledBlocks(segment);
  auto& blocks = sequence.state.As<AtpState>().blocks;
  blocks.reserve(n_closed);
  const int64_t n_bases = shape.n_bases(context_.geometry);
  while (static_cast<int64_t>(blocks.size()) < n_closed) {
    auto block = std::make_shared<PrincipalBlock>();
    block->shape = shape;
    const auto number = static_cast<int64_t>(blocks.size());
    if (o.merge) block->n_blocks = MergedBlocks(number);
    block->n_sinks = number < block->n_blocks ? o.sinks : 0;
    LK_RETURN_IF_ERROR(block->Allocate(context_.geometry, number, *context_.cache));
    for (int64_t head = 0; head < n_bases; ++head) {
      compress_tasks_.push_back({segment_index, static_cast<int32_t>(head), block.get(), number});
    }
    blocks.push_back(std::move(block));
  }
  return absl::OkStatus();
}

absl::Status AtpPolicy::PlanCache(int32_t segment_index, const Segment& segment) {
  LK_RETURN_IF_ERROR(TakePages(segment, *context_.cache));
  if (segment.sequence->options.atp.basis == AtpBasis::kInput) {
    LK_RETURN_IF_ERROR(TakeSlabPages(segment, InputPageBytes(context_.geometry), *context_.cache,
                                     segment.sequence->state.As<AtpState>().input_pages));
  }
  return PlanBlocks(segment_index, segment);
}

absl::Status AtpPolicy::PlanCaches(absl::Span<const Segment> segments) {
  segments_ = segments;
  compress_tasks_.clear();
  for (size_t i = 0; i < segments.size(); ++i) {
    const absl::Status status = PlanCache(static_cast<int32_t>(i), segments[i]);
    if (status.ok()) continue;
    for (const Segment& s : segments.first(i + 1)) DropUnfilledBlocks(s);
    return status;
  }
  return absl::OkStatus();
}

// Frees blocks that another stands for in every row and merge to come.
void AtpPolicy::FreeMerged(SequenceCache& sequence) const {
  const AtpOptions& o = sequence.options.atp;
  const int64_t n_far = sequence.n_tokens / o.block_tokens - o.window_blocks;
  for (int64_t number = 0; number < n_far; ++number) {
    if (number + 1 + MergedBlocks(number) <= n_far) {
      sequence.state.As<AtpState>().blocks[number] = nullptr;
    }
  }
}

void AtpPolicy::Advance(SequenceCache& sequence, int64_t n_rows) {
  sequence.n_tokens += n_rows;
  for (const CompressTask& task : compress_tasks_) {
    // Other sequences' blocks may be gone.
    if (segments_[task.segment].sequence != &sequence) continue;
    const bool last = task.kv_head == task.block->shape.n_bases(context_.geometry) - 1;
    if (last) task.block->Trim(context_.geometry);
  }
  const AtpOptions& o = sequence.options.atp;
  if (o.merge) FreeMerged(sequence);
  auto& state = sequence.state.As<AtpState>();
  const auto n_closed = static_cast<int64_t>(state.blocks.size());
  const int64_t open_page = n_closed * o.block_tokens / kPageTokens;
  for (int64_t page = 0; o.basis == AtpBasis::kInput && page < open_page; ++page) {
    state.input_pages[page] = nullptr;
  }
  const int64_t near = FirstNearBlock(sequence, sequence.n_tokens);
  const int64_t end = near * o.block_tokens / kPageTokens;
  for (int64_t page = o.sinks > 0 ? 1 : 0; page < end; ++page) sequence.pages[page] = {};
}

std::optional<SequenceCache> AtpPolicy::Prefix(const SequenceCache& sequence, int64_t,
                                               int64_t n_tokens) const {
  // Later rows saw the prompt compressed, which rows of a longer prompt would not have.
  if (n_tokens > sequence.n_prompt_tokens) return std::nullopt;
  const AtpOptions& o = sequence.options.atp;
  const auto& state = sequence.state.As<AtpState>();
  const int64_t n_pages = n_tokens / kPageTokens, n_closed = n_tokens / o.block_tokens;
  const int64_t near =
      o.prefill == AtpPrefill::kExact ? 0 : std::max<int64_t>(0, n_closed - o.window_blocks);
  auto pages = FirstPages(sequence.pages, near * o.block_tokens / kPageTokens, n_pages);
  if (!pages.has_value()) return std::nullopt;
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  prefix.pages = *std::move(pages);
  if (near > 0 && o.sinks > 0) {
    if (!sequence.pages[0]) return std::nullopt;
    prefix.pages[0] = sequence.pages[0];
  }
  if (o.basis == AtpBasis::kInput) {
    auto inputs = FirstPages(state.input_pages, n_closed * o.block_tokens / kPageTokens, n_pages);
    if (!inputs.has_value()) return std::nullopt;
    prefix.state.As<AtpState>().input_pages = *std::move(inputs);
  }
  auto blocks = FirstPages(state.blocks, 0, n_closed);
  if (blocks.has_value()) {
    prefix.state.As<AtpState>().blocks = *std::move(blocks);
  } else if (near > 0 || o.basis == AtpBasis::kInput || o.merge) {
    // The tokens that would make the blocks again are gone; or all of the blocks would be held at
    // once, where BoundBytes has the merged ones.
    return std::nullopt;
  }
  return prefix;
}

SequenceReport AtpPolicy::Report(absl::Span<const SequenceCache* const> sequences) const {
  std::set<std::shared_ptr<const PrincipalBlock>> blocks;
  for (const SequenceCache* s : sequences) {
    const auto& held = s->state.As<AtpState>().blocks;
    blocks.insert(held.begin(), held.end());
  }
  blocks.erase(nullptr);  // another block stands for these
  double rank = 0;
  for (const auto& block : blocks) rank += block->MeanRank();
  if (sequences[0]->options.atp.basis == AtpBasis::kCalibrated) {
    rank = index_->MeanKeyComponents();
  } else if (blocks.empty()) {
    rank = static_cast<double>(ShapeOf(context_.geometry, sequences[0]->options.atp).rank);
  } else {
    rank /= static_cast<double>(blocks.size());
  }
  return {static_cast<int32_t>(std::llround(rank)), static_cast<int32_t>(blocks.size())};
}

}  // namespace lowkey

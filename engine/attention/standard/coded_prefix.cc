#include "engine/attention/standard/coded_prefix.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/attention/principal_codes.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int64_t kBlockPages = kPrefixBlockTokens / kPageTokens;
// Requests may ask for any number of bits: beyond so many, plans are made anew.
constexpr size_t kMaxPlans = 8;

// A block's code begins with the ends of its shares, in the order of layer, page and group, as
// uint64 offsets from the code's begin; the shares follow one another.
int64_t NumShares(const PrefixCodes& codes) {
  return codes.n_layers * kBlockPages * codes.n_groups;
}
int64_t HeaderBytes(const PrefixCodes& codes) {
  return NumShares(codes) * static_cast<int64_t>(sizeof(uint64_t));
}
uint64_t EndOfShare(const std::byte* code, int64_t share) {
  uint64_t end = 0;
  std::memcpy(&end, code + share * sizeof(end), sizeof(end));
  return end;
}
void SetEndOfShare(Slab& slab, int64_t share, uint64_t end) {
  std::memcpy(slab.data() + share * sizeof(end), &end, sizeof(end));
}

absl::Span<const std::byte> ShareOf(const PrefixCodes& codes, const std::byte* code,
                                    int64_t share) {
  const uint64_t begin = share == 0 ? HeaderBytes(codes) : EndOfShare(code, share - 1);
  return {code + begin, EndOfShare(code, share) - begin};
}

std::vector<PageRotation> RotationsOf(const PrefixCodes& codes, int64_t block) {
  std::vector<PageRotation> rotations;
  for (int64_t p = 0; p < kBlockPages; ++p) rotations.emplace_back(codes, block * kBlockPages + p);
  return rotations;
}

}  // namespace

CodedStandard::CodedStandard(Mechanism id, const AttentionContext& context)
    : HostStandard(id, context),
      codes_(context.codes->prefixes),
      scratch_(context.pool->n_threads()) {}

std::optional<int64_t> CodedStandard::prompt_block(const AttentionOptions& options) const {
  if (!CodesPrefixes(options)) return std::nullopt;
  return kPrefixBlockTokens;
}

int64_t CodedStandard::MaxCodeBytes(const AttentionOptions& options) const {
  return HeaderBytes(codes_) +
         NumShares(codes_) *
             lowkey::MaxCodeBytes(codes_.group.dim(), options.standard.prefix_storage.bits());
}

int64_t CodedStandard::BoundBytes(const AttentionOptions& options,
                                  const SequenceBound& bound) const {
  const int64_t n_bytes = HostStandard::BoundBytes(options, bound);
  const bool has_block = bound.n_prompt_tokens >= kPrefixBlockTokens;
  // One block's code exists beside its pages, while it is made or decoded.
  return CodesPrefixes(options) && has_block ? n_bytes + MaxCodeBytes(options) : n_bytes;
}

std::shared_ptr<const PrefixBits> CodedStandard::BitsOf(const AttentionOptions& options) {
  if (bits_.size() > kMaxPlans) bits_.clear();
  const PrefixStorage& storage = options.standard.prefix_storage;
  std::shared_ptr<const PrefixBits>& bits = bits_[storage.centibits];
  if (bits == nullptr) {
    bits = std::make_shared<const PrefixBits>(PlanPrefixBits(codes_, storage.bits()));
  }
  return bits;
}

absl::Status CodedStandard::RebuildBlock(SequenceCache& sequence, int64_t block) {
  const std::shared_ptr<Slab> slab = sequence.state.As<StandardState>().coded_blocks[block].code;
  const std::shared_ptr<const PrefixBits> bits = BitsOf(sequence.options);
  const std::vector<PageRotation> rotations = RotationsOf(codes_, block);
  std::vector<PageHandle> pages;
  for (int64_t p = 0; p < kBlockPages; ++p) {
    LK_ASSIGN_OR_RETURN(pages.emplace_back(), context_.cache->AllocatePage());
  }
  context_.pool->ParallelFor(NumShares(codes_), [&](int64_t share, int thread) {
    const int64_t group = share % codes_.n_groups, page = share / codes_.n_groups % kBlockPages;
    const CodedShare coded{context_.geometry,
                           codes_,
                           *bits,
                           rotations[page],
                           pages[page].data(),
                           share / codes_.n_groups / kBlockPages,
                           group};
    // The codes are our own or were checked (AppendPiece), and slabs do not change.
    LK_CHECK(DecodeShare(coded, ShareOf(codes_, slab->data(), share), scratch_[thread]).ok());
  });
  sequence.pages.resize(block * kBlockPages);
  for (PageHandle& page : pages) sequence.pages.push_back(std::move(page));
  sequence.state.As<StandardState>().coded_blocks[block].code.reset();
  return absl::OkStatus();
}

absl::Status CodedStandard::Rebuild(SequenceCache& sequence) {
  const auto n = static_cast<int64_t>(sequence.state.As<StandardState>().coded_blocks.size());
  for (int64_t block = 0; block < n; ++block) {
    const bool is_code = sequence.state.As<StandardState>().coded_blocks[block].code != nullptr;
    if (is_code && block * kPrefixBlockTokens < sequence.n_tokens) {
      LK_RETURN_IF_ERROR(RebuildBlock(sequence, block));
    }
  }
  return absl::OkStatus();
}

// Plans to code the block that the segment ends, if it ends one.
absl::Status CodedStandard::PlanClosing(const Segment& segment) {
  SequenceCache& sequence = *segment.sequence;
  const int64_t end = segment.first_position + segment.n_rows;
  if (segment.first_position >= sequence.n_prompt_tokens) return absl::OkStatus();
  const int64_t block = segment.first_position / kPrefixBlockTokens;
  const int64_t block_end = (block + 1) * kPrefixBlockTokens;
  if (end > block_end && block_end <= sequence.n_prompt_tokens) {
    return absl::InternalError(absl::StrCat("prompt rows ", segment.first_position, "..", end - 1,
                                            ", expected none on both sides of ", block_end));
  }
  // A step that failed may have left blocks behind, which mean nothing.
  sequence.state.As<StandardState>().coded_blocks.resize(block);
  if (end != block_end) return absl::OkStatus();
  for (int64_t p = block * kBlockPages; p < (block + 1) * kBlockPages; ++p) {
    if (sequence.pages[p].unique()) continue;
    LK_ASSIGN_OR_RETURN(PageHandle page, context_.cache->AllocatePage());
    context_.cache->Copy(sequence.pages[p].data(), page.data(), page.size_bytes());
    sequence.pages[p] = std::move(page);
  }
  Closing closing{
      &sequence,          block, BitsOf(sequence.options), RotationsOf(codes_, block), nullptr,
      HeaderBytes(codes_)};
  LK_ASSIGN_OR_RETURN(closing.slab, context_.cache->AllocateSlab(MaxCodeBytes(sequence.options)));
  closings_.push_back(std::move(closing));
  return absl::OkStatus();
}

absl::Status CodedStandard::Plan(absl::Span<const Segment> segments) {
  closings_.clear();
  for (const Segment& s : segments) {
    if (CodesPrefixes(s.sequence->options)) LK_RETURN_IF_ERROR(Rebuild(*s.sequence));
  }
  LK_RETURN_IF_ERROR(HostStandard::Plan(segments));
  for (const Segment& s : segments) {
    if (CodesPrefixes(s.sequence->options)) LK_RETURN_IF_ERROR(PlanClosing(s));
  }
  const auto n_codes = static_cast<int64_t>(closings_.size()) * kBlockPages * codes_.n_groups;
  if (static_cast<int64_t>(share_codes_.size()) < n_codes) share_codes_.resize(n_codes);
  return absl::OkStatus();
}

void CodedStandard::Append(Closing& closing, int64_t layer,
                           absl::Span<const std::vector<std::byte>> shares) {
  Slab& slab = *closing.slab;
  for (size_t i = 0; i < shares.size(); ++i) {
    std::copy(shares[i].begin(), shares[i].end(), slab.data() + closing.size_bytes);
    closing.size_bytes += static_cast<int64_t>(shares[i].size());
    SetEndOfShare(slab, layer * static_cast<int64_t>(shares.size()) + static_cast<int64_t>(i),
                  closing.size_bytes);
  }
  if (layer + 1 < codes_.n_layers) return;
  slab.Shrink(closing.size_bytes);
  closing.sequence->state.As<StandardState>().coded_blocks.push_back(
      {closing.slab, std::weak_ptr<Slab>(closing.slab)});
  closing.slab.reset();
}

void CodedStandard::Attend(const LayerRows& rows) {
  HostStandard::Attend(rows);
  const int64_t n_shares = kBlockPages * codes_.n_groups;  // of a block at this layer
  const auto n_closings = static_cast<int64_t>(closings_.size());
  context_.pool->ParallelFor(n_closings * n_shares, [&](int64_t i, int thread) {
    const Closing& closing = closings_[i / n_shares];
    const int64_t page = i % n_shares / codes_.n_groups;
    const CodedShare share{context_.geometry,
                           codes_,
                           *closing.bits,
                           closing.rotations[page],
                           closing.sequence->pages[closing.block * kBlockPages + page].data(),
                           rows.layer,
                           i % codes_.n_groups};
    std::vector<std::byte>& code = share_codes_[i];
    code.clear();
    EncodeShare(share, scratch_[thread], code);
    LK_CHECK(DecodeShare(share, code, scratch_[thread]).ok());
  });
  const auto codes = absl::MakeConstSpan(share_codes_);
  for (int64_t c = 0; c < n_closings; ++c) {
    Append(closings_[c], rows.layer, codes.subspan(c * n_shares, n_shares));
  }
}

void CodedStandard::Advance(SequenceCache& sequence, int64_t n_rows) {
  HostStandard::Advance(sequence, n_rows);
  if (!CodesPrefixes(sequence.options)) return;
  for (auto& block : sequence.state.As<StandardState>().coded_blocks) block.code.reset();
}

std::optional<SequenceCache> CodedStandard::Prefix(const SequenceCache& sequence,
                                                   int64_t n_computed, int64_t n_tokens) const {
  if (!CodesPrefixes(sequence.options)) {
    return HostStandard::Prefix(sequence, n_computed, n_tokens);
  }
  const std::vector<CodedPromptBlock>& coded = sequence.state.As<StandardState>().coded_blocks;
  const int64_t n_blocks = n_tokens / kPrefixBlockTokens;
  if (n_tokens % kPrefixBlockTokens != 0 || static_cast<int64_t>(coded.size()) < n_blocks) {
    return std::nullopt;
  }
  SequenceCache prefix;
  prefix.n_tokens = n_tokens;
  std::vector<CodedPromptBlock>& blocks = prefix.state.As<StandardState>().coded_blocks;
  for (int64_t i = 0; i < n_blocks; ++i) {
    std::shared_ptr<Slab> code = coded[i].known.lock();
    if (code == nullptr) return std::nullopt;
    blocks.push_back({std::move(code), coded[i].known});
  }
  return prefix;
}

std::optional<int64_t> CodedStandard::part_tokens(const AttentionOptions& options) const {
  return CodesPrefixes(options) ? kPrefixBlockTokens : HostStandard::part_tokens(options);
}

void CodedStandard::AppendPart(const SequenceCache& from, int64_t begin, int64_t end,
                               SequenceCache& prefix) const {
  if (!CodesPrefixes(from.options)) return HostStandard::AppendPart(from, begin, end, prefix);
  AppendElements(from.state.As<StandardState>().coded_blocks, begin / kPrefixBlockTokens,
                 end / kPrefixBlockTokens, prefix.state.As<StandardState>().coded_blocks);
  prefix.n_tokens += end - begin;
}

std::optional<PieceShape> CodedStandard::piece_shape(const AttentionOptions& options) const {
  if (!CodesPrefixes(options)) return HostStandard::piece_shape(options);
  return PieceShape{kPrefixBlockTokens, MaxCodeBytes(options)};
}

absl::Span<const std::byte> CodedStandard::PieceBytes(const SequenceCache& prefix,
                                                      int64_t i) const {
  if (!CodesPrefixes(prefix.options)) return HostStandard::PieceBytes(prefix, i);
  const Slab& slab = *prefix.state.As<StandardState>().coded_blocks[i].code;
  return {slab.data(), static_cast<size_t>(slab.size_bytes())};
}

absl::Status CodedStandard::CheckBlock(const PrefixBits& bits,
                                       absl::Span<const std::byte> bytes) const {
  const auto size = static_cast<uint64_t>(bytes.size());
  auto begin = static_cast<uint64_t>(HeaderBytes(codes_));
  const int64_t n_shares = NumShares(codes_);
  for (int64_t share = 0; share < n_shares && begin <= size; ++share) {
    const uint64_t end = EndOfShare(bytes.data(), share);
    if (end < begin || end > size) {
      return absl::InvalidArgumentError(absl::StrCat("block: share ", share, " at ", begin, "..",
                                                     end, ", expected at most ", size));
    }
    const int64_t layer = share / codes_.n_groups / kBlockPages, group = share % codes_.n_groups;
    LK_RETURN_IF_ERROR(
        CheckVectors(bits[layer * codes_.n_groups + group], bytes.subspan(begin, end - begin)));
    begin = end;
  }
  if (begin == size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("block: ", size, " bytes, expected ", begin, " or more"));
}

absl::Status CodedStandard::AppendPiece(SequenceCache& prefix, absl::Span<const std::byte> bytes) {
  if (!CodesPrefixes(prefix.options)) return HostStandard::AppendPiece(prefix, bytes);
  LK_RETURN_IF_ERROR(CheckBlock(*BitsOf(prefix.options), bytes));
  LK_ASSIGN_OR_RETURN(std::shared_ptr<Slab> slab,
                      context_.cache->AllocateSlab(static_cast<int64_t>(bytes.size())));
  std::copy(bytes.begin(), bytes.end(), slab->data());
  prefix.state.As<StandardState>().coded_blocks.push_back({slab, slab});
  prefix.n_tokens += kPrefixBlockTokens;
  return absl::OkStatus();
}

SequenceReport CodedStandard::Report(absl::Span<const SequenceCache* const> sequences) const {
  SequenceReport report = HostStandard::Report(sequences);
  for (const SequenceCache* s : sequences) {
    if (!CodesPrefixes(s->options)) continue;
    const auto n = static_cast<int64_t>(s->state.As<StandardState>().coded_blocks.size());
    report.n_coded_tokens = std::max(report.n_coded_tokens, n * kPrefixBlockTokens);
  }
  return report;
}

}  // namespace lowkey

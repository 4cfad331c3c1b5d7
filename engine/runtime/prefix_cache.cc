#include "engine/runtime/prefix_cache.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace lowkey {

namespace {

using Held = std::unique_ptr<HeldPrefix>;

// Makes the prefixes of one computed sequence.
class PrefixMaker {
 public:
  PrefixMaker(const AttentionOptions& options, const SequenceCache& computed, int64_t n_computed,
              const AttentionMechanism& mechanism, PrefixMemory& memory)
      : options_(options),
        computed_(computed),
        n_computed_(n_computed),
        mechanism_(mechanism),
        memory_(memory),
        part_tokens_(mechanism.part_tokens(options)) {}

  // Returns the prefix of n_tokens, behind `before` where prefixes are cut into parts; nullopt
  // where the mechanism gives none of this length.
  std::optional<Held> Make(int64_t n_tokens, const HeldPrefix* before) {
    return part_tokens_.has_value() ? MakePart(n_tokens, before) : MakeWhole(n_tokens, before);
  }

 private:
  std::optional<SequenceCache> PrefixOf(int64_t n_tokens) const {
    std::optional<SequenceCache> prefix = mechanism_.Prefix(computed_, n_computed_, n_tokens);
    if (prefix.has_value()) prefix->options = options_;
    return prefix;
  }

  std::optional<Held> MakeWhole(int64_t n_tokens, const HeldPrefix* shorter) const {
    std::optional<SequenceCache> prefix = PrefixOf(n_tokens);
    if (!prefix.has_value()) return std::nullopt;
    auto held = std::make_unique<HeldPrefix>(*std::move(prefix), memory_);
    held->Count(shorter);
    return held;
  }

  std::optional<Held> MakePart(int64_t n_tokens, const HeldPrefix* before) {
    if (n_tokens % *part_tokens_ != 0 || !Reaches(n_tokens)) return std::nullopt;
    SequenceCache part;
    part.options = options_;
    mechanism_.AppendPart(*longest_, before == nullptr ? 0 : before->n_tokens(), n_tokens, part);
    auto held = std::make_unique<HeldPrefix>(std::move(part), memory_, before);
    held->Count(nullptr);
    return held;
  }

  // Returns whether the longest prefix that the mechanism gives has so many tokens.
  bool Reaches(int64_t n_tokens) {
    const int64_t most = n_computed_ / *part_tokens_ * *part_tokens_;
    for (int64_t n = most; !longest_.has_value() && n >= n_tokens; n -= *part_tokens_) {
      longest_ = PrefixOf(n);
    }
    return longest_.has_value() && longest_->n_tokens >= n_tokens;
  }

  const AttentionOptions& options_;
  const SequenceCache& computed_;
  const int64_t n_computed_;
  const AttentionMechanism& mechanism_;
  PrefixMemory& memory_;
  const std::optional<int64_t> part_tokens_;
  std::optional<SequenceCache> longest_;  // parts are cut from it
};

}  // namespace

std::vector<int64_t> BlockStops(const EngineRequest& request, const AttentionMechanism& mechanism) {
  std::vector<int64_t> stops;
  const std::optional<int64_t> block = mechanism.prompt_block(request.attention);
  if (!block.has_value()) return stops;
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  for (int64_t at = *block; at <= n_prompt; at += *block) stops.push_back(at);
  return stops;
}

std::vector<int64_t> PrefixStops(const EngineRequest& request,
                                 const AttentionMechanism& mechanism) {
  const std::vector<int64_t> blocks = BlockStops(request, mechanism);
  std::set<int64_t> stops(blocks.begin(), blocks.end());
  for (int32_t mark : request.prefix_marks) stops.insert(mark / kPageTokens * kPageTokens);
  if (mechanism.prefix_reach() == PrefixReach::kAllRows) {
    const auto n_before_last = static_cast<int64_t>(request.prompt.size()) - 1;
    stops.insert(n_before_last / kPageTokens * kPageTokens);
  }
  stops.erase(0);
  return {stops.begin(), stops.end()};
}

bool IsPrefixStop(const EngineRequest& request, const AttentionMechanism& mechanism,
                  int64_t n_tokens) {
  const std::vector<int64_t> stops = PrefixStops(request, mechanism);
  return std::binary_search(stops.begin(), stops.end(), n_tokens);
}

void PrefixMemory::Add(MemoryId memory, int64_t n_bytes) {
  const size_t n_new = new_slabs_.size();
  if (n_new == new_slabs_.capacity()) new_slabs_.reserve(std::max<size_t>(1, 2 * n_new));
  Piece& piece = pieces_[memory];
  if (++piece.n_prefixes > 1) return;
  piece.n_bytes = n_bytes;
  n_bytes_ += n_bytes;
  if (IsSlab(memory)) new_slabs_.push_back(memory);
}

void PrefixMemory::Recount() {
  for (const MemoryId& memory : new_slabs_) {
    const auto found = pieces_.find(memory);
    if (found == pieces_.end()) continue;  // else a prefix holds the slab
    const int64_t n_bytes = static_cast<const Slab*>(memory.first)->size_bytes();
    n_bytes_ += n_bytes - found->second.n_bytes;
    found->second.n_bytes = n_bytes;
  }
  new_slabs_.clear();
}

void PrefixMemory::Remove(MemoryId memory) noexcept {
  const auto found = pieces_.find(memory);
  if (--found->second.n_prefixes > 0) return;
  n_bytes_ -= found->second.n_bytes;
  pieces_.erase(found);
}

void HeldPrefix::Count(const HeldPrefix* shorter) {
  const auto count = [this](MemoryId memory, int64_t n_bytes) {
    // Memory is taken first: after Add nothing may throw.
    const size_t n = counted_.size();
    if (n == counted_.capacity()) counted_.reserve(std::max<size_t>(1, 2 * n));
    memory_.Add(memory, n_bytes);
    counted_.push_back(memory);
  };
  for (size_t i = 0; i < cache_.pages.size(); ++i) {
    const PageHandle& page = cache_.pages[i];
    if (!page) continue;
    const bool is_known = shorter != nullptr && i < shorter->cache_.pages.size() &&
                          shorter->cache_.pages[i] && shorter->cache_.pages[i].id() == page.id();
    if (!is_known) count(page.id(), page.size_bytes());
  }
  std::vector<const Slab*> known;
  if (shorter != nullptr) {
    shorter->cache_.state.VisitSlabs([&](const Slab& slab) { known.push_back(&slab); });
  }
  size_t n_slabs = 0;
  cache_.state.VisitSlabs([&](const Slab& slab) {
    const size_t i = n_slabs++;
    if (i >= known.size() || known[i] != &slab) count(IdOf(slab), slab.size_bytes());
  });
}

HeldPrefix::~HeldPrefix() {
  for (const MemoryId& memory : counted_) memory_.Remove(memory);
}

SequenceCache HeldPrefix::Whole(const AttentionMechanism& mechanism) const {
  if (before_ == nullptr) return cache_;
  std::vector<const SequenceCache*> parts;  // the last one first
  for (const HeldPrefix* p = this; p != nullptr; p = p->before_) parts.push_back(&p->cache_);
  SequenceCache whole = *parts.back();
  for (auto part = parts.rbegin() + 1; part != parts.rend(); ++part) {
    mechanism.AppendPart(**part, 0, (*part)->n_tokens, whole);
  }
  return whole;
}

int64_t PrefixCache::MostTokens(const RequestState& state) {
  const EngineRequest& request = state.request;
  const int64_t most = state.n_prompt_tokens() - 1;
  // A row's logits score the token after it.
  const int64_t wanted = state.WantsPromptLogprob(request.prompt_logprobs_from)
                             ? std::min<int64_t>(most, request.prompt_logprobs_from - 1)
                             : most;
  return std::max<int64_t>(0, wanted - wanted % kPageTokens);
}

int64_t PrefixCache::NumTokens(const RequestState& state) {
  const EngineRequest& request = state.request;
  const auto tenant = by_tenant_.find(request.tenant);
  if (tenant == by_tenant_.end()) return 0;
  return tenant->second.index.Find(request.attention, request.prompt, MostTokens(state)).n_tokens;
}

int64_t PrefixCache::Restore(RequestState& state, const AttentionMechanism& mechanism) {
  const EngineRequest& request = state.request;
  const auto tenant = by_tenant_.find(request.tenant);
  if (tenant == by_tenant_.end()) return 0;
  const auto match =
      tenant->second.index.Find(request.attention, request.prompt, MostTokens(state));
  if (match.value == nullptr) return 0;
  SequenceCache& cache = state.choices[0].cache;
  SequenceCache whole = (*match.value)->Whole(mechanism);
  const SequenceCache empty = std::exchange(cache, std::move(whole));
  cache.options = empty.options;
  cache.n_prompt_tokens = empty.n_prompt_tokens;
  cache.n_final_tokens = empty.n_final_tokens;
  return match.n_tokens;
}

void PrefixCache::Add(const EngineRequest& request, absl::Span<const int32_t> tokens,
                      const SequenceCache& cache, const AttentionMechanism& mechanism) {
  Tenant& tenant = by_tenant_[request.tenant];
  has_new_ = true;
  PrefixMaker maker(request.attention, cache, static_cast<int64_t>(tokens.size()), mechanism,
                    tenant.memory);
  tenant.index.Add(request.attention, tokens, [&](int64_t n_tokens, const Held* before) {
    return maker.Make(n_tokens, before == nullptr ? nullptr : before->get());
  });
}

void PrefixCache::Save(const RequestState& state, const AttentionMechanism& mechanism,
                       int64_t n_computed) {
  const std::vector<int32_t> tokens = state.FirstTokens(n_computed);
  Add(state.request, tokens, state.choices[0].cache, mechanism);
}

absl::StatusOr<int64_t> PrefixCache::Extend(const RequestState& state,
                                            AttentionMechanism& mechanism, int64_t n_tokens,
                                            absl::Span<const Buffer> pieces) {
  const EngineRequest& request = state.request;
  Tenant& tenant = by_tenant_[request.tenant];
  SequenceCache cache;
  if (n_tokens > 0) {
    const auto match = tenant.index.Find(request.attention, request.prompt, n_tokens);
    if (match.n_tokens != n_tokens) return absl::AbortedError("the prefix is gone");
    cache = (*match.value)->Whole(mechanism);
  }
  cache.options = request.attention;
  // Counted for its tenant also where the cache drops it meanwhile: others give nothing for it.
  HeldPrefix held(cache, tenant.memory);
  held.Count(nullptr);
  for (const Buffer& piece : pieces) {
    if (!mechanism.AppendPiece(cache, {piece.data(), piece.size_bytes()}).ok()) break;
  }
  Add(request, absl::MakeConstSpan(request.prompt).first(cache.n_tokens), cache, mechanism);
  return cache.n_tokens;
}

void PrefixCache::Recount() {
  if (!std::exchange(has_new_, false)) return;
  for (auto& [name, tenant] : by_tenant_) tenant.memory.Recount();
}

bool PrefixCache::DropOldest() {
  const auto most =
      std::max_element(by_tenant_.begin(), by_tenant_.end(), [](const auto& a, const auto& b) {
        return a.second.memory.n_bytes() < b.second.memory.n_bytes();
      });
  return most != by_tenant_.end() && most->second.index.DropOldest();
}

}  // namespace lowkey

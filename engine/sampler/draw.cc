#include "engine/sampler/draw.h"

#include <algorithm>

namespace lowkey {
namespace {

double Sum(const std::vector<float>& weights) {
  const auto n = static_cast<int32_t>(weights.size());
  double sum = 0.0;
  for (int32_t i = 0; i < n; i += kSumBlock) {
    sum += BlockSum(&weights[i], std::min(kSumBlock, n - i));
  }
  return sum;
}

uint64_t FixedSum(const std::vector<float>& weights) {
  uint64_t sum = 0;
  for (float weight : weights) sum += FixedWeight(weight);
  return sum;
}

// Finds the item of a draw's target: the first at which the running sum of weights exceeds it.
// Items (blocks of tokens, then the tokens of a block) are handed over in order of id.
struct Search {
  double target = 0.0;
  double sum = 0.0;
  double before = 0.0;  // the sum before `found`
  int32_t found = 0;    // rounding may leave the target past the end: the last with any weight

  // True when the target is found.
  bool Pass(int32_t id, double weight) {
    if (weight == 0.0) return false;
    found = id;
    before = sum;
    sum += weight;
    return sum > target;
  }
};

// Draws from all weights: finds the block by its sum, then walks that block alone.
int32_t DrawFromAll(const std::vector<float>& weights, double uniform) {
  const auto n = static_cast<int32_t>(weights.size());
  Search blocks{.target = uniform * Sum(weights)};
  for (int32_t i = 0; i < n; i += kSumBlock) {
    if (blocks.Pass(i, BlockSum(&weights[i], std::min(kSumBlock, n - i)))) break;
  }
  Search tokens{.target = blocks.target, .sum = blocks.before};
  const int32_t end = std::min(blocks.found + kSumBlock, n);
  for (int32_t i = blocks.found; i < end; ++i) {
    if (tokens.Pass(i, weights[i])) break;
  }
  return tokens.found;
}

// Returns the weights that top_k leaves (all when it is off), in order of id, without those that
// top_p cannot keep.
void FillCandidates(const DrawFilters& filters, DrawScratch& scratch) {
  const int32_t n = static_cast<int32_t>(scratch.weights.size());
  if (filters.top_k > 0 && filters.top_k < n) {
    SelectTop(scratch.weights, filters.top_k, scratch.candidates);
    std::sort(scratch.candidates.begin(), scratch.candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    return;
  }
  float smallest = 0.0f;
  if (filters.top_p < 1.0f) {
    smallest = BelowNucleus(filters.top_p, Sum(scratch.weights), n);
  }
  smallest = std::max(smallest, filters.min_p);  // the largest weight is 1
  scratch.candidates.clear();
  for (int32_t i = 0; i < n; ++i) {
    if (scratch.weights[i] >= smallest) scratch.candidates.push_back({scratch.weights[i], i});
  }
}

uint64_t FixedSumOf(const std::vector<Candidate>& candidates) {
  uint64_t sum = 0;
  for (const Candidate& candidate : candidates) sum += FixedWeight(candidate.value);
  return sum;
}

// Keeps the fewest of the most likely candidates whose weights reach `needed`, in order of id as
// before. Bisects by weight in `ranked`: nothing is sorted, whatever the size of the nucleus.
void KeepNucleus(uint64_t needed, std::vector<Candidate>& ranked,
                 std::vector<Candidate>& candidates) {
  ranked = candidates;
  auto first = ranked.begin(), last = ranked.end();
  uint64_t before = 0;  // of all that come before `first`
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, ComesFirst);
    uint64_t sum = before;
    for (auto it = first; it != middle; ++it) sum += FixedWeight(it->value);
    if (sum >= needed) {
      last = middle;
    } else {
      before = sum;
      first = middle;
    }
  }
  const Candidate cut = *first;
  std::erase_if(candidates, [&](const Candidate& c) { return ComesFirst(cut, c); });
}

// Hands over the sum of each block that holds a candidate, (first id, sum), until `pass` is true.
// Other tokens count as 0. Candidates are in order of id.
template <typename Pass>
void ForEachBlock(const std::vector<Candidate>& candidates, Pass pass) {
  for (size_t i = 0; i < candidates.size();) {
    const int32_t begin = candidates[i].token / kSumBlock * kSumBlock;
    double lanes[kSumLanes] = {};
    for (; i < candidates.size() && candidates[i].token - begin < kSumBlock; ++i) {
      lanes[candidates[i].token % kSumLanes] += candidates[i].value;
    }
    if (pass(begin, LanesSum(lanes))) return;
  }
}

int32_t DrawFromCandidates(const std::vector<Candidate>& candidates, double uniform) {
  double total = 0.0;
  ForEachBlock(candidates, [&](int32_t, double sum) {
    total += sum;
    return false;
  });
  Search blocks{.target = uniform * total};
  ForEachBlock(candidates, [&](int32_t begin, double sum) { return blocks.Pass(begin, sum); });
  Search tokens{.target = blocks.target, .sum = blocks.before};
  const auto first = std::partition_point(
      candidates.begin(), candidates.end(),
      [&](const Candidate& candidate) { return candidate.token < blocks.found; });
  for (auto it = first; it != candidates.end() && it->token < blocks.found + kSumBlock; ++it) {
    if (tokens.Pass(it->token, it->value)) break;
  }
  return tokens.found;
}

}  // namespace

int32_t DrawToken(const DrawInput& input, const DrawFilters& filters, DrawScratch& scratch) {
  ExpWeights(input.logits, input.max, input.temperature, scratch.weights);
  const int32_t n = static_cast<int32_t>(scratch.weights.size());
  const bool has_top_k = filters.top_k > 0 && filters.top_k < n;
  if (!has_top_k && filters.top_p >= 1.0f && filters.min_p <= 0.0f) {
    return DrawFromAll(scratch.weights, input.uniform);
  }
  std::vector<Candidate>& candidates = scratch.candidates;
  FillCandidates(filters, scratch);
  if (filters.top_p < 1.0f) {
    const uint64_t total = has_top_k ? FixedSumOf(candidates) : FixedSum(scratch.weights);
    KeepNucleus(NeededOf(filters.top_p, total), scratch.ranked, candidates);
  }
  if (filters.min_p > 0.0f) {
    std::erase_if(candidates, [&](const Candidate& c) { return c.value < filters.min_p; });
  }
  return DrawFromCandidates(candidates, input.uniform);
}

}  // namespace lowkey

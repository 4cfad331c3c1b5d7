#include "engine/sampler/draw.h"

#include <algorithm>

namespace lowkey {
namespace {

constexpr size_t kBlock = 256;

double BlockSum(const float* weights, size_t n) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights[i + lane];
  }
  double sum = 0.0;
  for (; i < n; ++i) sum += weights[i];
  for (double partial : sums) sum += partial;
  return sum;
}

double Sum(const std::vector<float>& weights) {
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); i += kBlock) {
    sum += BlockSum(&weights[i], std::min(kBlock, weights.size() - i));
  }
  return sum;
}

// Draws from all weights: finds the block by its sum, then walks that block alone.
int32_t DrawFromAll(const std::vector<float>& weights, double uniform) {
  const double target = uniform * Sum(weights);
  size_t block = 0;
  double before_block = 0.0, sum = 0.0;
  for (size_t begin = 0; begin < weights.size() && sum <= target; begin += kBlock) {
    const double in_block = BlockSum(&weights[begin], std::min(kBlock, weights.size() - begin));
    if (in_block == 0.0) continue;
    block = begin;
    before_block = sum;
    sum += in_block;
  }
  int32_t last = 0;  // rounding may leave the target past the end: the last with any weight
  const size_t end = std::min(block + kBlock, weights.size());
  for (size_t i = block; i < end; ++i) {
    if (weights[i] == 0.0f) continue;
    last = static_cast<int32_t>(i);
    before_block += weights[i];
    if (before_block > target) break;
  }
  return last;
}

// The weights that top_k leaves (all when it is off), in order of id. With top_p,
// drops what it cannot keep: tokens below (1 - p) / n of the sum have less than 1 - p together, so
// the most likely tokens reach p before any of them.
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
    // Half of it: rounding of the sums stays far below that.
    smallest = static_cast<float>(0.5 * (1.0 - filters.top_p) / n * Sum(scratch.weights));
  }
  smallest = std::max(smallest, filters.min_p);  // the largest weight is 1
  scratch.candidates.clear();
  for (int32_t i = 0; i < n; ++i) {
    if (scratch.weights[i] >= smallest) scratch.candidates.push_back({scratch.weights[i], i});
  }
}

double SumOf(const std::vector<Candidate>& candidates) {
  double sum = 0.0;
  for (const Candidate& candidate : candidates) sum += candidate.value;
  return sum;
}

// Keeps the fewest of the most likely candidates whose weights reach `needed`, in order of id as
// before. Bisects by weight in `ranked`: nothing is sorted, whatever the size of the nucleus.
void KeepNucleus(double needed, std::vector<Candidate>& ranked,
                 std::vector<Candidate>& candidates) {
  ranked = candidates;
  auto first = ranked.begin(), last = ranked.end();
  double before = 0.0;  // of all that come before `first`
  while (last - first > 1) {
    const auto middle = first + (last - first) / 2;
    std::nth_element(first, middle, last, ComesFirst);
    double sum = before;
    for (auto it = first; it != middle; ++it) sum += it->value;
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

int32_t DrawFromCandidates(const std::vector<Candidate>& candidates, double uniform) {
  const double target = uniform * SumOf(candidates);
  double sum = 0.0;
  int32_t last = candidates.front().token;
  for (const Candidate& candidate : candidates) {
    if (candidate.value == 0.0f) continue;
    last = candidate.token;
    sum += candidate.value;
    if (sum > target) break;
  }
  return last;
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
    const double total = has_top_k ? SumOf(candidates) : Sum(scratch.weights);
    KeepNucleus(filters.top_p * total, scratch.ranked, candidates);
  }
  if (filters.min_p > 0.0f) {
    std::erase_if(candidates, [&](const Candidate& c) { return c.value < filters.min_p; });
  }
  return DrawFromCandidates(candidates, input.uniform);
}

}  // namespace lowkey

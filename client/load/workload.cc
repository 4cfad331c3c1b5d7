#include "client/load/workload.h"

#include <algorithm>
#include <utility>

namespace lowkey {
namespace {

// Streams of random numbers of one seed, which must not repeat each other.
enum class RandomStream : uint32_t { kShape, kPrompt, kSampling, kArrivals };

std::mt19937_64 Random(uint64_t seed, RandomStream stream, int64_t point, int64_t index) {
  const auto high = [](auto n) { return static_cast<uint32_t>(static_cast<uint64_t>(n) >> 32); };
  const auto low = [](auto n) { return static_cast<uint32_t>(n); };
  std::seed_seq sequence{high(seed), low(seed),   static_cast<uint32_t>(stream),
                         low(point), high(index), low(index)};
  return std::mt19937_64(sequence);
}

size_t DrawMechanism(const std::vector<MixShare>& mix, std::mt19937_64& random) {
  double sum = 0;
  for (const MixShare& item : mix) sum += item.weight;
  double at = std::uniform_real_distribution<double>(0, sum)(random);
  for (size_t i = 0; i + 1 < mix.size(); ++i) {
    at -= mix[i].weight;
    if (at < 0) return i;
  }
  return mix.size() - 1;
}

}  // namespace

Workload::Workload(WorkloadOptions options) : options_(std::move(options)) {
  std::vector<int32_t>& special = options_.special_tokens;
  std::sort(special.begin(), special.end());
  special.erase(std::unique(special.begin(), special.end()), special.end());
}

PlannedRequest Workload::At(int64_t point, int64_t index) const {
  std::mt19937_64 shape = Random(options_.seed, RandomStream::kShape, 0, index);
  PlannedRequest planned;
  planned.mix_index = DrawMechanism(options_.mix, shape);
  int32_t n_prompt = DrawLength(options_.prompt_lengths, shape);
  int32_t n_output = DrawLength(options_.output_lengths, shape);
  if (!options_.trace.empty()) {
    const TraceRow& row = options_.trace[static_cast<size_t>(index) % options_.trace.size()];
    n_prompt = row.n_prompt_tokens;
    n_output = row.n_output_tokens;
  }
  planned.is_cut = n_prompt + n_output > options_.context_tokens;
  n_output = std::min(n_output, options_.context_tokens - 1);
  n_prompt = std::min(n_prompt, options_.context_tokens - n_output);
  planned.n_prompt_tokens = n_prompt;

  std::mt19937_64 prompt = Random(options_.seed, RandomStream::kPrompt, point, index);
  GenerationRequest& request = planned.request;
  request.input = Prompt(n_prompt, prompt);
  request.max_new_tokens = n_output;
  request.ignore_eos = true;
  request.attention = options_.mix[planned.mix_index].attention;
  request.sampling = options_.sampling;
  request.sampling.seed = Random(options_.seed, RandomStream::kSampling, point, index)();
  return planned;
}

TokenList Workload::Prompt(int32_t n_tokens, std::mt19937_64& random) const {
  TokenList tokens;
  tokens.reserve(static_cast<size_t>(n_tokens));
  if (!options_.text.empty()) {
    size_t at = std::uniform_int_distribution<size_t>(0, options_.text.size() - 1)(random);
    while (tokens.size() < static_cast<size_t>(n_tokens)) {
      tokens.push_back(options_.text[at]);
      at = at + 1 == options_.text.size() ? 0 : at + 1;
    }
    return tokens;
  }
  // Each special token at or below the draw moves the draw up by one.
  const int32_t n_special = static_cast<int32_t>(options_.special_tokens.size());
  std::uniform_int_distribution<int32_t> draw(0, std::max(0, options_.vocab_size - n_special - 1));
  while (tokens.size() < static_cast<size_t>(n_tokens)) {
    int32_t token = draw(random);
    for (const int32_t special : options_.special_tokens) token += special <= token ? 1 : 0;
    tokens.push_back(token);
  }
  return tokens;
}

std::vector<double> DrawArrivals(const ArrivalOptions& options, int64_t n) {
  std::mt19937_64 random = Random(options.seed, RandomStream::kArrivals, 0, 0);
  std::gamma_distribution<double> gap(options.burstiness,
                                      1 / (options.burstiness * options.rate_per_s));
  std::vector<double> arrivals;
  double at = 0;
  while (static_cast<int64_t>(arrivals.size()) < n) {
    at += gap(random);
    if (at > options.limit_s) break;
    arrivals.push_back(at);
  }
  return arrivals;
}

}  // namespace lowkey

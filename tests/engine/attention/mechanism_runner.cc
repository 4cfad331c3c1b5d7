// MechanismRunner of attention_testing.h: a mechanism, step by step, on the host or on a device.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "absl/hash/hash.h"
#include "engine/attention/slices/input.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

MechanismWeights WeightsFor(const AttentionGeometry& g, const MechanismRunner::Options& options) {
  MechanismWeights weights = TestWeights(g, options.over, options.tau);
  weights.tau_window = options.tau_window;
  weights.window_tokens = options.window_tokens;
  return weights;
}

// The pages of a model whose checkpoint has keys as wide as values.
int64_t CachePageBytes(AttentionGeometry g) {
  g.score_dim.reset();
  return PageBytes(g);
}

// Work is repeated by a key that other runners of the device must not have.
uint64_t NewRunnerNumber() {
  static std::atomic<uint64_t> n = 0;
  return ++n;
}

// Fills the memory that an emulated device's cache gives first with NaN: no mechanism may rely on
// what was there before.
void Poison(Cache& cache) {
  constexpr int64_t kBytes = int64_t{2} << 20;
  std::vector<PageHandle> pages;
  for (int64_t n = 0; n < std::min(kBytes, cache.budget_bytes() / 2); n += cache.page_bytes()) {
    pages.push_back(cache.AllocatePage().value());
    std::memset(pages.back().data(), 0xff, static_cast<size_t>(cache.page_bytes()));
  }
  pages.clear();
  const auto slab = cache.AllocateSlab(std::min(kBytes, cache.budget_bytes())).value();
  std::memset(slab->data(), 0xff, static_cast<size_t>(slab->size_bytes()));
}

}  // namespace

MechanismRunner::MechanismRunner(const AttentionGeometry& geometry, Mechanism mechanism)
    : MechanismRunner(geometry, mechanism, Options{}) {}

MechanismRunner::MechanismRunner(const AttentionGeometry& geometry, Mechanism mechanism,
                                 const Options& options)
    : MechanismRunner(geometry, mechanism, options, WeightsFor(geometry, options)) {}

MechanismRunner::MechanismRunner(const AttentionGeometry& geometry, Mechanism mechanism,
                                 const MechanismWeights& weights)
    : MechanismRunner(geometry, mechanism, Options{}, weights) {}

MechanismRunner::MechanismRunner(const AttentionGeometry& geometry, Mechanism mechanism,
                                 const Options& options, const MechanismWeights& weights)
    : geometry_(geometry),
      pool_(std::make_unique<ThreadPool>(options.n_threads)),
      weights_(std::make_unique<const MechanismWeights>(weights)),
      number_(NewRunnerNumber()),
      repeats_(options.repeats) {
  auto cache = Cache::Create(options.budget_bytes, CachePageBytes(geometry), TestDevice());
  EXPECT_TRUE(cache.ok()) << cache.status();
  cache_ = *std::move(cache);
  AttentionContext context{geometry, cache_.get(), pool_.get(), weights_.get()};
  if (mechanism == Mechanism::kAtp) {
    codes_ = std::make_unique<const PrincipalCodes>(TestCodes(geometry));
    context.codes = codes_.get();
  }
  if (TestDevice() != nullptr) {
    if (IsEmulated(*TestDevice())) Poison(*cache_);
    host_cache_ = Cache::Create(options.budget_bytes, CachePageBytes(geometry)).value();
    place_ = {TestDevice(), host_cache_.get(), 1024};
    context.place = &place_;
  }
  mechanism_ = options.make != nullptr ? options.make(context) : MakeMechanism(mechanism, context);
}

float* MechanismRunner::Here(std::vector<float>& rows, Buffer& there) {
  if (TestDevice() == nullptr) return rows.data();
  const auto n_bytes = static_cast<int64_t>(rows.size() * sizeof(float));
  // Never smaller: what was queued may still read it.
  if (static_cast<int64_t>(there.size_bytes()) < n_bytes) {
    there = Buffer::Allocate(static_cast<size_t>(n_bytes), TestDevice()).value();
  }
  TestDevice()->Upload(rows.data(), there.data(), n_bytes);
  return there.as<float>();
}

void MechanismRunner::AttendHere(const LayerRows& rows, std::vector<float>& out) {
  const auto attend = [&] {
    ++n_attended_;
    mechanism_->Attend(rows);
  };
  const std::optional<uint64_t> key = repeats_ ? mechanism_->PlanKey() : std::nullopt;
  if (key.has_value()) {
    TestDevice()->Repeat(absl::HashOf(number_, *key), attend);
  } else {
    attend();
  }
  if (TestDevice() == nullptr) return;
  const auto status = TestDevice()->Download(rows.out, out.data(),
                                             static_cast<int64_t>(out.size() * sizeof(float)));
  EXPECT_TRUE(status.ok()) << status;
}

absl::Status MechanismRunner::Step(const std::vector<Part>& parts) {
  std::vector<Segment> segments;
  int64_t n_rows = 0;
  for (const Part& p : parts) {
    segments.push_back({p.sequence, p.sequence->n_tokens, p.n_rows, n_rows});
    n_rows += p.n_rows;
  }
  const absl::Status planned = cache_->FitIn([&] { return mechanism_->Plan(segments); });
  if (!planned.ok()) return planned;
  const int64_t ld = parts[0].rows->ld();
  const int64_t out_dim = geometry_.out_dim();
  std::vector<float> in(n_rows * ld), out(n_rows * out_dim);
  for (int64_t layer = 0; layer < geometry_.n_layers; ++layer) {
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int64_t i = 0; i < parts[p].n_rows; ++i) {
        const int64_t position = segments[p].first_position + i;
        float* row = in.data() + (segments[p].first_row + i) * ld;
        std::copy_n(parts[p].rows->row(layer, position), ld, row);
        TakeSlices(geometry_, ProjectionsOf(mechanism_->id(), weights_->over),
                   weights_->inverse_frequencies, position, row + ld - geometry_.out_dim(), row);
      }
    }
    std::fill(out.begin(), out.end(), std::nanf(""));
    const float* q = Here(in, in_there_);
    const float* k = q + geometry_.q_dim();
    const float* v = k + geometry_.k_dim();
    const float* x = v + geometry_.v_dim();
    AttendHere({layer, x, ld, q, k, v, ld, Here(out, out_there_), out_dim}, out);
    for (size_t p = 0; p < parts.size(); ++p) {
      const int64_t n_tokens = parts[p].rows->n_tokens;
      parts[p].out->resize(geometry_.n_layers * n_tokens * out_dim);
      std::copy_n(out.data() + segments[p].first_row * out_dim, parts[p].n_rows * out_dim,
                  parts[p].out->data() + (layer * n_tokens + segments[p].first_position) * out_dim);
    }
  }
  for (const Part& p : parts) {
    if (!p.n_kept.has_value()) mechanism_->Advance(*p.sequence, p.n_rows);
    for (int64_t i = 0; i < p.n_kept.value_or(0); ++i) mechanism_->Advance(*p.sequence, 1);
  }
  return absl::OkStatus();
}

SequenceCache NewSequence(const AttentionOptions& options, int64_t n_prompt_tokens) {
  SequenceCache sequence;
  sequence.options = options;
  sequence.n_prompt_tokens = n_prompt_tokens;
  return sequence;
}

std::vector<float> RunSequence(const AttentionRows& rows, const RunOptions& options) {
  const int64_t n_prompt = options.n_prompt_tokens.value_or(rows.n_tokens);
  MechanismRunner runner(rows.geometry, options.attention.mechanism,
                         {options.n_threads, int64_t{1} << 28, options.over, options.tau,
                          options.make, options.tau_window, options.window_tokens});
  SequenceCache sequence = NewSequence(options.attention, n_prompt);
  std::vector<float> out;
  while (sequence.n_tokens < rows.n_tokens) {
    const int64_t end =
        sequence.n_tokens < n_prompt ? std::min(n_prompt, rows.n_tokens) : rows.n_tokens;
    const int64_t n = std::min(options.chunk_tokens, end - sequence.n_tokens);
    const absl::Status status = runner.Step({{&sequence, &rows, n, &out}});
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) break;
  }
  return out;
}

}  // namespace lowkey

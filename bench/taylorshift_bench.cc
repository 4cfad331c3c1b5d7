#include "bench/taylorshift_bench.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/attention/attention.h"
#include "engine/attention/taylorshift/state.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int64_t kLayers = 12, kHeads = 12;
constexpr int64_t kStepRows = 512;
constexpr int64_t kPoints = 12;

// Seconds at one length.
struct Point {
  int64_t n_tokens = 0;
  double prefill_seconds = 0;  // seconds of all tokens up to here
  double decode_seconds = 0;   // seconds of one token after them
};

int64_t RowSize(const AttentionGeometry& g) { return g.q_dim() + g.k_dim() + g.v_dim(); }

// Random rows, the same in every step: what is computed does not depend on their values.
class Runner {
 public:
  static absl::StatusOr<std::unique_ptr<Runner>> Create(const AttentionGeometry& g, TaylorForm form,
                                                        int n_threads, int64_t max_tokens) {
    std::unique_ptr<Runner> runner(new Runner(g, n_threads));
    AttentionContext context{g, nullptr, &runner->pool_};
    AttentionOptions options;
    options.mechanism = Mechanism::kTaylorShift;
    options.taylorshift.form = form;
    const int64_t bytes = MakeMechanism(options.mechanism, context)
                              ->BoundBytes(options, {max_tokens, max_tokens, kStepRows});
    LK_ASSIGN_OR_RETURN(runner->cache_, Cache::Create(bytes, PageBytes(g)));
    context.cache = runner->cache_.get();
    runner->mechanism_ = MakeMechanism(options.mechanism, context);
    runner->sequence_.options = options;
    return runner;
  }

  // Seconds of the next n_rows rows in one step.
  absl::StatusOr<double> Step(int64_t n_rows) {
    const absl::Time start = absl::Now();
    const Segment segment{&sequence_, sequence_.n_tokens, n_rows, 0};
    LK_RETURN_IF_ERROR(mechanism_->Plan({&segment, 1}));
    const AttentionGeometry& g = geometry_;
    for (int64_t layer = 0; layer < g.n_layers; ++layer) {
      const float* q = in_.data();
      const float* k = q + g.q_dim();
      mechanism_->Attend(
          {layer, nullptr, 0, q, k, k + g.k_dim(), RowSize(g), out_.data(), g.out_dim()});
    }
    mechanism_->Advance(sequence_, n_rows);
    return absl::ToDoubleSeconds(absl::Now() - start);
  }

  // Seconds of all rows up to n_tokens.
  absl::StatusOr<double> PrefillTo(int64_t n_tokens) {
    double seconds = 0;
    while (sequence_.n_tokens < n_tokens) {
      LK_ASSIGN_OR_RETURN(const double step,
                          Step(std::min(kStepRows, n_tokens - sequence_.n_tokens)));
      seconds += step;
    }
    return seconds;
  }

  // Seconds a row over the next whole chunk, row by row: the fastest row, and the share of what the
  // first one has to fold.
  absl::StatusOr<double> DecodeChunk() {
    std::vector<double> seconds(kPageTokens);
    for (double& s : seconds) {
      LK_ASSIGN_OR_RETURN(s, Step(1));
    }
    const double fastest = *std::min_element(seconds.begin(), seconds.end());
    return fastest + (seconds[0] - fastest) / kPageTokens;
  }

 private:
  Runner(const AttentionGeometry& g, int n_threads)
      : geometry_(g), pool_(n_threads), in_(kStepRows * RowSize(g)), out_(kStepRows * g.out_dim()) {
    std::mt19937 rng(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (float& x : in_) x = uniform(rng);
  }

  const AttentionGeometry geometry_;
  ThreadPool pool_;
  std::vector<float> in_, out_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<AttentionMechanism> mechanism_;
  SequenceCache sequence_;
};

// One run over the points' lengths; keeps the shorter of what is there and what it takes. Prefill
// seconds are those since the point before.
absl::Status MeasureOnce(const AttentionGeometry& g, TaylorForm form, int n_threads,
                         std::vector<Point>& points) {
  const int64_t max_tokens = points.back().n_tokens + kPageTokens;
  LK_ASSIGN_OR_RETURN(auto prefill, Runner::Create(g, form, n_threads, max_tokens));
  for (Point& p : points) {
    LK_ASSIGN_OR_RETURN(const double seconds, prefill->PrefillTo(p.n_tokens));
    p.prefill_seconds = std::min(p.prefill_seconds, seconds);
  }
  prefill.reset();
  LK_ASSIGN_OR_RETURN(auto decode, Runner::Create(g, form, n_threads, max_tokens));
  for (Point& p : points) {
    LK_RETURN_IF_ERROR(decode->PrefillTo(p.n_tokens).status());
    LK_ASSIGN_OR_RETURN(const double seconds, decode->DecodeChunk());
    p.decode_seconds = std::min(p.decode_seconds, seconds);
  }
  return absl::OkStatus();
}

// Lengths step, 2 step, .. kPoints step.
absl::StatusOr<std::vector<Point>> Measure(const AttentionGeometry& g, TaylorForm form,
                                           const TaylorBenchOptions& options, int64_t step) {
  std::vector<Point> points;
  for (int64_t i = 1; i <= kPoints; ++i) points.push_back({i * step, 1e30, 1e30});
  for (int run = 0; run < options.n_runs; ++run) {
    LK_RETURN_IF_ERROR(MeasureOnce(g, form, options.limits.n_threads, points));
  }
  for (int64_t i = 1; i < kPoints; ++i) points[i].prefill_seconds += points[i - 1].prefill_seconds;
  return points;
}

// The length where the direct form's seconds pass the recurrent form's.
std::optional<double> Crossing(const std::vector<Point>& direct,
                               const std::vector<Point>& recurrent, double Point::*seconds) {
  for (size_t i = 1; i < direct.size(); ++i) {
    const double before = direct[i - 1].*seconds - recurrent[i - 1].*seconds;
    const double after = direct[i].*seconds - recurrent[i].*seconds;
    if (before >= 0 || after < 0) continue;
    const auto step = static_cast<double>(direct[i].n_tokens - direct[i - 1].n_tokens);
    return static_cast<double>(direct[i].n_tokens) - step * after / (after - before);
  }
  return std::nullopt;
}

// Multiply-adds and bytes of one head at one layer, as docs/taylorshift.md counts them.
struct Costs {
  double token;  // numbers of a key and a value, e + d
  double state;  // F (d + 1)
  double b_cache;
  double DirectPrefill(double n) const { return n * n * token / 2; }
  double RecurrentPrefill(double n) const { return n * (2 * state + kPageTokens * token / 2); }
  double DirectDecode(double n) const { return n * token; }
  double RecurrentDecode() const { return 2 * state; }
  double DirectBytes(double n) const { return n * token * b_cache; }
  double StateBytes() const { return 4 * state; }
};

void PrintCrossing(const char* name, std::optional<double> measured, double formula,
                   double at_rates) {
  std::printf("  %-22s measured ", name);
  if (measured.has_value()) {
    std::printf("%6.0f", *measured);
  } else {
    std::printf("%6s", "-");
  }
  std::printf("   formula %6.0f   formula at these rates %6.0f\n", formula, at_rates);
}

// Heads with keys of e numbers and values of d.
struct BenchedHeads {
  int64_t e = 0, d = 0;
  int64_t step = 0;  // tokens between two points
};

absl::Status BenchHeads(const BenchedHeads& bench, const TaylorBenchOptions& options) {
  const MachineLimits& limits = options.limits;
  const StorageType type = options.cache_type;
  AttentionGeometry g{kLayers, kHeads, kHeads, bench.d, std::nullopt, type};
  g.score_dim = bench.e;
  LK_ASSIGN_OR_RETURN(const auto direct, Measure(g, TaylorForm::kDirect, options, bench.step));
  LK_ASSIGN_OR_RETURN(const auto recurrent,
                      Measure(g, TaylorForm::kRecurrent, options, bench.step));
  const double heads = kLayers * kHeads;
  const Costs c{static_cast<double>(bench.e + bench.d),
                static_cast<double>(TaylorShape(g).n_features * (bench.d + 1)),
                static_cast<double>(StorageBytes(type))};
  std::printf(
      "\nheads of %d, scores of %d, state %.1f MB; milliseconds, in () share of peak, in [] of "
      "read\n",
      static_cast<int>(bench.d), static_cast<int>(bench.e),
      static_cast<double>(TaylorSlabBytes(g)) * 1e-6);
  std::printf("%7s %17s %17s %23s %23s\n", "tokens", "prefill direct", "recurrent", "decode direct",
              "recurrent");
  const auto share = [&](double macs, double seconds) {
    return 100 * 2 * macs * heads / seconds / limits.peak_flops;
  };
  const auto read = [&](double bytes, double seconds) {
    return 100 * bytes * heads / seconds / limits.read_bytes_per_second;
  };
  for (int64_t i = 0; i < kPoints; ++i) {
    const Point &a = direct[i], &b = recurrent[i];
    const auto n = static_cast<double>(a.n_tokens);
    std::printf(
        "%7d %10.2f (%3.0f%%) %10.2f (%3.0f%%) %9.3f (%3.0f%%) [%3.0f%%] %9.3f (%3.0f%%) "
        "[%3.0f%%]\n",
        static_cast<int>(a.n_tokens), a.prefill_seconds * 1e3,
        share(c.DirectPrefill(n), a.prefill_seconds), b.prefill_seconds * 1e3,
        share(c.RecurrentPrefill(n), b.prefill_seconds), a.decode_seconds * 1e3,
        share(c.DirectDecode(n), a.decode_seconds), read(c.DirectBytes(n), a.decode_seconds),
        b.decode_seconds * 1e3, share(c.RecurrentDecode(), b.decode_seconds),
        read(c.StateBytes(), b.decode_seconds));
  }
  const Point &a = direct.back(), &b = recurrent.back();
  const auto n = static_cast<double>(a.n_tokens);
  // Multiply-adds a second of each form at the longest length.
  const double prefill_ratio =
      (c.DirectPrefill(n) / a.prefill_seconds) / (c.RecurrentPrefill(n) / b.prefill_seconds);
  const double decode_ratio =
      (c.DirectDecode(n) / a.decode_seconds) / (c.RecurrentDecode() / b.decode_seconds);
  const double n_decode = 2 * c.state / c.token, n_prefill = 2 * n_decode + kPageTokens;
  PrintCrossing("prefill", Crossing(direct, recurrent, &Point::prefill_seconds), n_prefill,
                n_prefill * prefill_ratio);
  PrintCrossing("decode, operations", Crossing(direct, recurrent, &Point::decode_seconds), n_decode,
                n_decode * decode_ratio);
  PrintCrossing("decode, bytes", Crossing(direct, recurrent, &Point::decode_seconds),
                c.StateBytes() / (c.token * c.b_cache), n_decode * decode_ratio);
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchTaylorShift(const TaylorBenchOptions& options) {
  for (const BenchedHeads& bench :
       {BenchedHeads{16, 16, 64}, BenchedHeads{32, 32, 128}, BenchedHeads{16, 32, 64},
        BenchedHeads{64, 64, 512}, BenchedHeads{32, 64, 192}, BenchedHeads{16, 64, 64}}) {
    LK_RETURN_IF_ERROR(BenchHeads(bench, options));
  }
  return absl::OkStatus();
}

}  // namespace lowkey

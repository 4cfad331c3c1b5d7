#include "engine/runtime/measure_rates.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/config/limits.h"
#include "engine/kernels/device/weight.h"
#include "engine/kernels/linear.h"
#include "engine/runtime/model_setup.h"
#include "engine/runtime/place/place.h"

namespace lowkey {
namespace {

constexpr absl::Duration kRateTime = absl::Milliseconds(50);
constexpr absl::Duration kWarmUpTime = absl::Milliseconds(200);
// A request's choices are generated together, and a prompt is read in chunks.
constexpr int64_t kMostLinearRows = 512;
constexpr int64_t kLinearRows[] = {1, 2, 4, kMaxChoices, kMostLinearRows};
constexpr int64_t kMinTokens = 64, kMaxTokens = int64_t{1} << 20;

std::vector<float> RandomFloats(int64_t n) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

double Since(absl::Time start) { return absl::ToDoubleSeconds(SteadyNow() - start); }

// One mechanism over one layer of a model's shape. A step of `chunk_tokens` rows or fewer is
// planned once and attends n_times, as a model does for its layers: a device is waited for once a
// step.
class LayerBench {
 public:
  LayerBench(MechanismSetup setup, ThreadPool& pool, Place& place, int64_t chunk_tokens,
             int64_t n_times)
      : setup_(std::move(setup)),
        pool_(pool),
        place_(place),
        chunk_tokens_(chunk_tokens),
        n_times_(n_times) {
    const AttentionGeometry& g = setup_.geometry;
    ld_ = g.q_dim() + g.k_dim() + g.v_dim() + g.input_dim();
  }

  // Makes a cache for two sequences of `n_tokens`: the one that grows and the one that generates.
  absl::Status Open(const AttentionOptions& wanted, int64_t n_tokens) {
    const AttentionGeometry& g = setup_.geometry;
    LK_ASSIGN_OR_RETURN(rows_, place_.Hold(RandomFloats(chunk_tokens_ * ld_)));
    LK_ASSIGN_OR_RETURN(out_, place_.Hold(std::vector<float>(chunk_tokens_ * g.out_dim())));
    LK_RETURN_IF_ERROR(place_.MakeCaches(g, PageBytes(g), chunk_tokens_));
    mechanism_ = setup_.Make(place_, pool_);
    if (mechanism_ == nullptr) return MissingWeights(wanted.mechanism);
    const AttentionOptions options = mechanism_->Resolve(wanted);
    LK_RETURN_IF_ERROR(mechanism_->CheckAvailable(options));
    const int64_t budget =
        2 * mechanism_->BoundBytes(options, {n_tokens, n_tokens + 64, chunk_tokens_}) +
        4 * PageBytes(g);
    mechanism_.reset();
    LK_RETURN_IF_ERROR(place_.MakeCaches(g, budget, chunk_tokens_));
    mechanism_ = setup_.Make(place_, pool_);
    sequence_.options = options;
    sequence_.n_prompt_tokens = n_tokens;
    return absl::OkStatus();
  }

  // The options that run.
  const AttentionOptions& options() const { return sequence_.options; }

  // Computes rows up to n_tokens; returns the seconds they took.
  absl::StatusOr<double> Prefill(int64_t n_tokens) {
    double seconds = 0;
    while (sequence_.n_tokens < n_tokens) {
      const int64_t n = std::min(chunk_tokens_, n_tokens - sequence_.n_tokens);
      LK_ASSIGN_OR_RETURN(const double step, Step(sequence_, n));
      seconds += step;
    }
    return seconds;
  }

  // Generates after the rows that were fed; returns the median of a token's seconds.
  absl::StatusOr<double> Decode(int n_runs) {
    SequenceCache fork = sequence_;
    fork.n_prompt_tokens = sequence_.n_tokens;
    std::vector<double> seconds;
    for (int i = 0; i <= n_runs; ++i) {  // the first one copies the last page
      LK_ASSIGN_OR_RETURN(const double step, Step(fork, 1));
      if (i > 0) seconds.push_back(step);
    }
    std::nth_element(seconds.begin(), seconds.begin() + n_runs / 2, seconds.end());
    return seconds[n_runs / 2];
  }

  // Forgets all rows.
  absl::Status Restart() {
    const SequenceCache fed = std::exchange(sequence_, SequenceCache());
    sequence_.options = fed.options;
    sequence_.n_prompt_tokens = fed.n_prompt_tokens;
    return place_.Wait();  // queued work may still read what is dropped
  }

  const AttentionMechanism& mechanism() const { return *mechanism_; }
  int64_t chunk_tokens() const { return chunk_tokens_; }

 private:
  // Returns the seconds of a layer.
  absl::StatusOr<double> Step(SequenceCache& sequence, int64_t n_rows) {
    const Segment segment{&sequence, sequence.n_tokens, n_rows, 0};
    const AttentionGeometry& g = setup_.geometry;
    const auto* q = rows_.as<float>();
    const float* k = q + g.q_dim();
    const float* v = k + g.k_dim();
    const absl::Time start = SteadyNow();
    LK_RETURN_IF_ERROR(mechanism_->Plan({&segment, 1}));
    for (int64_t i = 0; i < n_times_; ++i) {
      mechanism_->Attend({0, v + g.v_dim(), ld_, q, k, v, ld_, out_.as<float>(), g.out_dim()});
    }
    LK_RETURN_IF_ERROR(place_.Wait());
    mechanism_->Advance(sequence, n_rows);
    return Since(start) / static_cast<double>(n_times_);
  }

  MechanismSetup setup_;
  ThreadPool& pool_;
  int64_t ld_ = 0;
  Place& place_;
  const int64_t chunk_tokens_, n_times_;
  Buffer rows_, out_;
  std::unique_ptr<AttentionMechanism> mechanism_;
  SequenceCache sequence_;  // must go before the cache
};

// The rates at every length. A prompt's rate is that of the whole prompt.
std::vector<AttentionRate> RatesFrom(const MechanismRates& m) {
  std::vector<AttentionRate> rates;
  for (const RatePoint& p : m.points) {
    rates.push_back({p.n_tokens, p.prefill_work / std::max(p.prefill_seconds, 1e-9),
                     p.decode_work / std::max(p.decode_seconds, 1e-9)});
  }
  return rates;
}

// Multiply-adds a second of the fastest product of rows with a weight [n, n], of at least five and
// of as many as fit into kRateTime: other work on the machine slows most of them down.
absl::StatusOr<double> RateOf(int64_t n_rows, int64_t n,
                              absl::FunctionRef<absl::Status(int64_t n_rows)> multiply) {
  double best = 1e30;
  const absl::Time first_start = SteadyNow();
  for (int run = 0; run < 5 || SteadyNow() - first_start < kRateTime; ++run) {
    const absl::Time start = SteadyNow();
    LK_RETURN_IF_ERROR(multiply(n_rows));
    best = std::min(best, Since(start));
  }
  return static_cast<double>(n_rows * n * n) / best;
}

// Sets the rates of projections of the model's width.
absl::Status SetLinearRates(int64_t n, absl::FunctionRef<absl::Status(int64_t n_rows)> multiply,
                            SelectionProfile& profile) {
  profile.linear.clear();
  for (const int64_t n_rows : kLinearRows) {
    LinearRate& rate = profile.linear.emplace_back();
    rate.n_rows = n_rows;
    LK_ASSIGN_OR_RETURN(rate.rate, RateOf(n_rows, n, multiply));
  }
  return absl::OkStatus();
}

absl::Status MeasureLinear(const TensorView& weights, const WeightStorage& storage,
                           ThreadPool& pool, SelectionProfile& profile) {
  const int64_t n = weights.shape[0];
  const std::vector<float> x = RandomFloats(kMostLinearRows * n);
  LK_ASSIGN_OR_RETURN(const PackedWeight packed, PackedWeight::Pack({&weights, 1}, storage, pool));
  const int64_t ld = RowStride(packed.n_out_padded());
  std::vector<float> y(kMostLinearRows * ld);
  const auto multiply = [&](int64_t n_rows) {
    Linear(packed, {x.data(), n}, n_rows, y.data(), ld, pool);
    return absl::OkStatus();
  };
  return SetLinearRates(n, multiply, profile);
}

// A matrix [n, n] of floats, or of the blocks that stay as they are stored.
struct MadeMatrix {
  // `like` is a matrix of the model, with rows of n numbers.
  MadeMatrix(int64_t n, const TensorView& like, const WeightStorage& storage) {
    const std::optional<CodeFormat> codes = FormOf(like, storage).codes;
    const bool keeps_codes = codes.has_value() && codes != CodeFormat::kInt8;
    if (!keeps_codes) {
      floats = RandomFloats(n * n);
      view = {DType::kF32, {n, n}, reinterpret_cast<const std::byte*>(floats.data())};
      return;
    }
    constexpr std::byte kAnything{0x11};  // a normal number as a scale
    // The codes of AWQ and GPTQ are as fast as those of Q4_1, or are Q8_0's.
    const DType stored = codes == CodeFormat::kInt4   ? DType::kQ4_1
                         : codes == CodeFormat::kQ8_0 ? DType::kQ8_0
                                                      : like.dtype;
    blocks.assign(n * n / DTypeBlockSize(stored) * DTypeBytes(stored), kAnything);
    view = {stored, {n, n}, blocks.data()};
  }

  std::vector<float> floats;
  std::vector<std::byte> blocks;
  TensorView view;
};

absl::Status MeasureDeviceLinear(const TensorView& weights, StorageType type, ThreadPool& pool,
                                 Device& device, SelectionProfile& profile) {
  const int64_t n = weights.shape[0];
  LK_ASSIGN_OR_RETURN(const auto weight, MakeDeviceWeight({&weights, 1}, type, pool, device));
  const size_t n_bytes = kMostLinearRows * n * sizeof(float);
  LK_ASSIGN_OR_RETURN(const Buffer x, Buffer::Allocate(n_bytes, &device));
  LK_ASSIGN_OR_RETURN(Buffer y, Buffer::Allocate(n_bytes, &device));
  const auto multiply = [&](int64_t n_rows) {
    device.Multiply({weight.get(), x.data(), n, n_rows, y.as<float>(), n});
    return device.Wait();
  };
  return SetLinearRates(n, multiply, profile);
}

absl::Status CheckLengths(const RateOptions& options) {
  for (size_t i = 0; i < options.lengths.size(); ++i) {
    const int64_t n = options.lengths[i];
    if (n < kMinTokens || n > kMaxTokens || (i > 0 && n <= options.lengths[i - 1])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "lengths: ", n, ", expected ascending ones in ", kMinTokens, "..", kMaxTokens));
    }
  }
  return absl::OkStatus();
}

// Computes up to most_tokens for a while without counting: a processor that was idle, and memory
// that was never touched, would make what is measured first look slow.
absl::Status WarmUp(LayerBench& bench, int64_t most_tokens) {
  const absl::Time start = SteadyNow();
  const auto goes_on = [&] { return SteadyNow() - start < kWarmUpTime; };
  for (int64_t n = 0; n < most_tokens && goes_on();) {
    n = std::min(n + bench.chunk_tokens(), most_tokens);
    LK_RETURN_IF_ERROR(bench.Prefill(n).status());
  }
  while (goes_on()) LK_RETURN_IF_ERROR(bench.Decode(1).status());
  return bench.Restart();
}

// Measures every length in turn and calls `note` after each.
absl::Status MeasureMechanism(LayerBench& bench, const RateOptions& options, MechanismRates& m,
                              const std::function<void()>& note) {
  const int64_t longest = bench.mechanism().max_tokens().value_or(2 * kMaxTokens);
  const auto fits = [&](int64_t n) { return n + options.n_decode_runs + 1 <= longest; };
  if (fits(options.lengths[0])) {
    LK_RETURN_IF_ERROR(WarmUp(bench, std::min(options.lengths.back(), longest - 2)));
  }
  double seconds = 0;
  for (const int64_t n : options.lengths) {
    if (!fits(n)) break;
    RatePoint& point = m.points.emplace_back();
    point.n_tokens = n;
    LK_ASSIGN_OR_RETURN(const double more, bench.Prefill(n));
    seconds += more;
    point.prefill_seconds = seconds;
    LK_ASSIGN_OR_RETURN(point.decode_seconds, bench.Decode(options.n_decode_runs));
    point.cache_bytes = bench.mechanism().HeldBytes(m.options, n);
    const AttentionWork work = bench.mechanism().Work(m.options, n);
    point.prefill_work = work.prefill;
    point.decode_work = work.decode;
    note();
  }
  return absl::OkStatus();
}

void Multiply(RatePoint& point, int64_t n_layers) {
  const auto n = static_cast<double>(n_layers);
  for (double* value :
       {&point.prefill_seconds, &point.decode_seconds, &point.prefill_work, &point.decode_work}) {
    *value *= n;
  }
  point.cache_bytes *= n_layers;
}

}  // namespace

absl::StatusOr<MeasuredRates> MeasureRates(const Checkpoint& checkpoint, const RateOptions& options,
                                           const std::function<void(int64_t, int64_t)>& progress) {
  LK_RETURN_IF_ERROR(CheckLengths(options));
  const WeightStorage storage = ResolveStorage(options.engine, checkpoint);
  const StorageType type = storage.type;
  ThreadPool pool(ResolveThreads(options.engine.n_threads));
  MeasuredRates out;
  const std::unique_ptr<Place> place = Place::Make(options.engine.device);
  LK_RETURN_IF_ERROR(place->CheckWeights(type));
  const int64_t n = checkpoint.config.hidden_dim;
  const MadeMatrix matrix(n, checkpoint.layers[0].q_proj, storage);
  const TensorView& view = matrix.view;
  Device* device = options.engine.device.get();
  LK_RETURN_IF_ERROR(device == nullptr
                         ? MeasureLinear(view, storage, pool, out.profile)
                         : MeasureDeviceLinear(view, type, pool, *device, out.profile));
  const auto n_steps = static_cast<int64_t>(options.mechanisms.size() * options.lengths.size());
  const int64_t chunk_tokens = std::max<int64_t>(1, options.engine.max_batch_tokens);
  for (size_t i = 0; i < options.mechanisms.size(); ++i) {
    const AttentionOptions& attention = options.mechanisms[i];
    std::vector<MechanismSetup> setups = SetUpMechanisms(checkpoint, RowTypeOf(type));
    MechanismSetup& setup =
        *std::find_if(setups.begin(), setups.end(),
                      [&](const MechanismSetup& s) { return s.id == attention.mechanism; });
    setup.geometry.n_layers = 1;
    if (attention.mechanism == Mechanism::kAtp) setup.codes = options.engine.codes.get();
    LayerBench bench(std::move(setup), pool, *place, chunk_tokens,
                     device == nullptr ? 1 : checkpoint.config.n_layers);
    const absl::Status opened = bench.Open(attention, options.lengths.back());
    if (!opened.ok() && options.leaves_out_missing) continue;
    LK_RETURN_IF_ERROR(opened);
    MechanismRates& m = out.mechanisms.emplace_back();
    m.options = bench.options();
    LK_RETURN_IF_ERROR(MeasureMechanism(bench, options, m, [&] {
      if (progress) {
        progress(static_cast<int64_t>(i * options.lengths.size() + m.points.size()), n_steps);
      }
    }));
    for (RatePoint& point : m.points) Multiply(point, checkpoint.config.n_layers);
    if (!m.points.empty()) out.profile.rates[AttentionLabel(m.options)] = RatesFrom(m);
  }
  return out;
}

}  // namespace lowkey

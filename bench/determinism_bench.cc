// Measures the cost of determinism: the engine's attention and products, whose sums have an order
// that depends on the row alone, against the same kernels with sums cut to suit the step and the
// threads. Runs both in turns and prints medians.
//   determinism_bench [--threads N] [--runs 15]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/clock.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/row_block.h"
#include "engine/attention/standard/host.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/linear.h"

ABSL_FLAG(int, threads, 0, "0: one per core");
ABSL_FLAG(int, runs, 15, "of each figure; the median is printed");

namespace lowkey {
namespace {

// The shapes of the random 110M model.
constexpr int64_t kLayers = 12, kHeads = 12, kHeadDim = 64, kHidden = 768, kFfn = 2048;
constexpr int64_t kRowFloats = 3 * kHeads * kHeadDim;

AttentionGeometry Geometry() {
  AttentionGeometry g;
  g.n_layers = kLayers, g.n_heads = g.n_kv_heads = kHeads, g.head_dim = kHeadDim;
  g.cache_type = StorageType::kBFloat16;
  return g;
}

std::vector<float> Random(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> x(n);
  for (float& value : x) value = static_cast<float>(rng() % 2001) * 1e-3f - 1.0f;
  return x;
}

LayerRows RowsAt(int64_t layer, const std::vector<float>& rows, std::vector<float>& out) {
  const float* q = rows.data();
  constexpr int64_t kWidth = kHeads * kHeadDim;
  return {layer, nullptr, 0, q, q + kWidth, q + 2 * kWidth, kRowFloats, out.data(), kWidth};
}

// Softmax attention whose rows read a sequence in n_parts equal parts, whatever its length: no sum
// has a fixed order, and nothing is folded that need not be.
class FreeAttention {
 public:
  FreeAttention(const AttentionGeometry& g, ThreadPool& pool, int64_t n_parts)
      : g_(g), pool_(pool), n_parts_(n_parts), blocks_(pool.n_threads()) {
    for (RowBlock& b : blocks_) b.Reserve(g);
    part_floats_ = MaxRowBlockTokens(g) * g.group() * (g.head_dim_padded() + 2);
  }

  void Plan(absl::Span<const Segment> segments) {
    segments_ = segments;
    tasks_.clear();
    for (size_t i = 0; i < segments.size(); ++i) {
      AppendRowBlocks(g_, static_cast<int32_t>(i), segments[i], {}, tasks_);
    }
    saved_.resize(n_parts_ == 1 ? 0 : tasks_.size() * n_parts_ * part_floats_);
  }

  void Attend(const LayerRows& rows) {
    WriteKv(g_, segments_, rows, pool_);
    const auto n_tasks = static_cast<int64_t>(tasks_.size());
    pool_.ParallelFor(n_tasks * n_parts_, [&](int64_t i, int thread) {
      ReadPart(rows, tasks_[i / n_parts_], i % n_parts_, blocks_[thread]);
      if (n_parts_ > 1) return blocks_[thread].SavePart(saved_.data() + i * part_floats_);
      blocks_[thread].Finish(segments_[tasks_[i].segment], tasks_[i], rows);
    });
    if (n_parts_ == 1) return;
    pool_.ParallelFor(n_tasks, [&](int64_t i, int thread) {
      RowBlock& block = blocks_[thread];
      block.Begin(g_, segments_[tasks_[i].segment], tasks_[i], rows);
      for (int64_t part = 0; part < n_parts_; ++part) {
        block.FoldPart(saved_.data() + (i * n_parts_ + part) * part_floats_);
      }
      block.Finish(segments_[tasks_[i].segment], tasks_[i], rows);
    });
  }

 private:
  void ReadPart(const LayerRows& rows, const RowBlockTask& task, int64_t part, RowBlock& block) {
    const Segment& segment = segments_[task.segment];
    block.Begin(g_, segment, task, rows);
    const int64_t end = block.last_position() + 1, n_pages = PagesFor(end);
    for (int64_t page = n_pages * part / n_parts_; page < n_pages * (part + 1) / n_parts_; ++page) {
      block.AddPage(TileOf(g_, segment.sequence->pages, page, rows.layer, task.kv_head), page, end);
    }
  }

  const AttentionGeometry g_;
  ThreadPool& pool_;
  const int64_t n_parts_;
  int64_t part_floats_ = 0;
  absl::Span<const Segment> segments_;
  std::vector<RowBlockTask> tasks_;
  std::vector<RowBlock> blocks_;  // by thread
  std::vector<float> saved_;
};

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

double Seconds(const std::function<void()>& work) {
  const absl::Time start = absl::Now();
  work();
  return absl::ToDoubleSeconds(absl::Now() - start);
}

// Times the engine's way and the others in turns, and prints how it compares with the fastest.
void Compare(const std::string& name, const std::function<void()>& fixed,
             const std::vector<std::function<void()>>& others) {
  const int n_runs = std::max(1, absl::GetFlag(FLAGS_runs));
  std::vector<double> fixed_seconds;
  std::vector<std::vector<double>> other_seconds(others.size());
  for (int run = -1; run < n_runs; ++run) {  // the first warms up
    const double seconds = Seconds(fixed);
    if (run >= 0) fixed_seconds.push_back(seconds);
    for (size_t i = 0; i < others.size(); ++i) {
      const double other = Seconds(others[i]);
      if (run >= 0) other_seconds[i].push_back(other);
    }
  }
  std::vector<double> medians;
  for (const auto& seconds : other_seconds) medians.push_back(Median(seconds));
  const double best = *std::min_element(medians.begin(), medians.end());
  const double ours = Median(fixed_seconds);
  std::printf("%-42s %10.3f %10.3f %+9.1f%%\n", name.c_str(), ours * 1e3, best * 1e3,
              100 * (ours / best - 1));
}

// n_seqs sequences of `depth` tokens, each with n_rows more, in all layers.
absl::Status CompareAttention(int64_t n_seqs, int64_t depth, int64_t n_rows, ThreadPool& pool) {
  const AttentionGeometry g = Geometry();
  const int64_t n_pages = n_seqs * PagesFor(depth + n_rows);
  LK_ASSIGN_OR_RETURN(auto cache, Cache::Create(n_pages * PageBytes(g), PageBytes(g)));
  const std::vector<float> past = Random(depth * kRowFloats, 1);
  const std::vector<float> rows = Random(n_seqs * n_rows * kRowFloats, 2);
  std::vector<float> out(std::max(depth, n_seqs * n_rows) * kHeads * kHeadDim);
  std::deque<SequenceCache> sequences(n_seqs);
  std::vector<Segment> segments;
  for (SequenceCache& sequence : sequences) {
    const Segment all{&sequence, 0, depth, 0};
    LK_RETURN_IF_ERROR(TakePages(all, *cache));
    for (int64_t l = 0; l < kLayers; ++l) WriteKv(g, {&all, 1}, RowsAt(l, past, out), pool);
    segments.push_back({&sequence, depth, n_rows, static_cast<int64_t>(segments.size()) * n_rows});
  }
  const auto step = [&](auto& attention) {
    return [&rows, &out, &attention, &segments] {
      (void)attention.Plan(segments);
      for (int64_t l = 0; l < kLayers; ++l) attention.Attend(RowsAt(l, rows, out));
    };
  };
  HostStandard fixed(Mechanism::kStandard, {g, cache.get(), &pool});
  LK_RETURN_IF_ERROR(fixed.Plan(segments));  // takes the pages
  std::vector<FreeAttention> free;
  for (int64_t n_parts : {1, 2, 4}) free.emplace_back(g, pool, n_parts);
  step(fixed)();
  const std::vector<float> expected = out;
  std::vector<std::function<void()>> others;
  for (FreeAttention& attention : free) {
    others.push_back(step(attention));
    others.back()();
    for (size_t i = 0; i < out.size(); ++i) LK_CHECK(std::fabs(out[i] - expected[i]) < 1e-3f);
  }
  Compare("attention, " + std::to_string(n_seqs) + " x " + std::to_string(n_rows) + " rows at " +
              std::to_string(depth),
          step(fixed), others);
  return absl::OkStatus();
}

// A layer's products, whole and with the sums of each half of its columns apart.
struct Product {
  PackedWeight whole, halves[2];
};

absl::StatusOr<Product> MakeProduct(int64_t n_out, int64_t n_in, ThreadPool& pool) {
  const std::vector<float> weight = Random(n_out * n_in, 3);
  const auto pack = [&](const std::vector<float>& w, int64_t width) {
    const TensorView view{
        DType::kF32, {n_out, width}, reinterpret_cast<const std::byte*>(w.data())};
    return PackedWeight::Pack({&view, 1}, {StorageType::kBFloat16}, pool);
  };
  Product product;
  LK_ASSIGN_OR_RETURN(product.whole, pack(weight, n_in));
  for (int64_t half = 0; half < 2; ++half) {
    std::vector<float> part;
    for (int64_t row = 0; row < n_out; ++row) {
      const auto begin = weight.begin() + row * n_in + half * (n_in / 2);
      part.insert(part.end(), begin, begin + n_in / 2);
    }
    LK_ASSIGN_OR_RETURN(product.halves[half], pack(part, n_in / 2));
  }
  return product;
}

void CompareProducts(const std::vector<Product>& products, int64_t n_rows, ThreadPool& pool) {
  const std::vector<float> x = Random(n_rows * kFfn, 4);
  constexpr int64_t kMostOut = 2 * kFfn;
  std::vector<float> y(2 * n_rows * RowStride(kMostOut));
  ThreadPool own[2] = {ThreadPool(1), ThreadPool(1)};  // one for each half
  const int64_t ldy = RowStride(kMostOut);
  const auto fixed = [&] {
    for (const Product& p : products) {
      Linear(p.whole, {x.data(), p.whole.n_in()}, n_rows, y.data(), ldy, pool);
    }
  };
  const auto halves = [&] {
    for (const Product& p : products) {
      pool.ParallelFor(2, [&](int64_t half, int) {
        Linear(p.halves[half], {x.data() + half * (p.whole.n_in() / 2), p.whole.n_in()}, n_rows,
               y.data() + half * n_rows * ldy, ldy, own[half]);
      });
      for (int64_t i = 0; i < n_rows; ++i) {
        Kernels().add(y.data() + (n_rows + i) * ldy, y.data() + i * ldy, p.whole.n_out());
      }
    }
  };
  Compare("products of all layers, " + std::to_string(n_rows) + " rows", fixed, {halves});
}

absl::Status Main() {
  const int n_cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ThreadPool pool(absl::GetFlag(FLAGS_threads) > 0 ? absl::GetFlag(FLAGS_threads) : n_cores);
  std::printf("%s, %d threads, bfloat16; ms\n%-42s %10s %10s %10s\n",
              std::string(Kernels().name).c_str(), pool.n_threads(), "", "fixed", "free", "costs");
  LK_RETURN_IF_ERROR(CompareAttention(1, 1000, 1, pool));
  LK_RETURN_IF_ERROR(CompareAttention(1, 8000, 1, pool));
  LK_RETURN_IF_ERROR(CompareAttention(16, 200, 1, pool));
  LK_RETURN_IF_ERROR(CompareAttention(16, 1500, 1, pool));
  LK_RETURN_IF_ERROR(CompareAttention(1, 3840, 256, pool));
  std::vector<Product> products;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    for (const auto& [n_out, n_in] : {std::pair{3 * kHidden, kHidden},
                                      {2 * kFfn, kHidden},
                                      std::pair{kHidden, kHidden},
                                      {kHidden, kFfn}}) {
      LK_ASSIGN_OR_RETURN(products.emplace_back(), MakeProduct(n_out, n_in, pool));
    }
  }
  for (int64_t n_rows : {1, 4, 16, 256}) CompareProducts(products, n_rows, pool);
  return absl::OkStatus();
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("what a fixed order of sums costs beside a free one");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lowkey::Main();
  if (!status.ok()) std::fprintf(stderr, "determinism_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

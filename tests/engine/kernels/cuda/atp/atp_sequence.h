#ifndef LOWKEY_TESTS_ENGINE_KERNELS_CUDA_ATP_ATP_SEQUENCE_H_
#define LOWKEY_TESTS_ENGINE_KERNELS_CUDA_ATP_ATP_SEQUENCE_H_

// The input of the tests of atp's kernels, and the reference in double.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/device/kernels.h"
#include "tests/testing/test_device.h"

namespace lowkey {

inline constexpr int64_t kHeads = 2, kGroup = 2, kDim = 20, kKeyWidth = 32, kValueWidth = 24;
inline constexpr int64_t kBlock = 128, kBlocks = 3, kTokens = 450, kSinks = 3;
inline constexpr int64_t kWidth = kHeads * kDim;  // numbers of a row's keys

using Matrix = std::vector<double>;

inline std::vector<float> Random(int64_t n, unsigned seed) {
  std::minstd_rand engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(engine);
  return x;
}

inline std::vector<double> Widened(const std::vector<float>& x) { return {x.begin(), x.end()}; }
inline std::vector<double> Widened(const std::vector<uint16_t>& x) {
  std::vector<double> out;
  for (uint16_t bits : x) out.push_back(ToFloat(BFloat16{bits}));
  return out;
}

inline double Dot(const double* x, const double* y, int64_t n) {
  return std::inner_product(x, x + n, y, 0.0);
}

// One layer of one sequence: its pages, and the blocks of all closed ones.
template <typename T>
class Sequence {
 public:
  Sequence(int64_t n_bases, int64_t rank, int64_t n_refined) : rank_(rank) {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
    model_ = {1,
              kHeads,
              kGroup,
              kDim,
              kKeyWidth,
              kValueWidth,
              sizeof(T) == sizeof(float) ? StorageType::kFloat32 : StorageType::kBFloat16};
    AtpSequence s;
    s.block_tokens = kBlock;
    s.rank = rank;
    s.n_sinks = kSinks;
    s.n_bases = n_bases;
    s.n_refined = n_refined;
    s.kept_bytes = n_refined > 0 ? kBlock * (kKeyWidth + kValueWidth) * kBytes : 0;
    s.u_bytes = kBlock * rank * kBytes;
    s.part_bytes = s.u_bytes + kHeads / n_bases * (rank + 1) * (kKeyWidth + kValueWidth) * kBytes;
    s.key_bytes = (rank + 1) * kKeyWidth * kBytes;
    s.value_bytes = (rank + 1) * kValueWidth * kBytes;
    sequence_ = s;
    const int64_t block_elements = (kHeads * s.kept_bytes + n_bases * s.part_bytes) / kBytes;
    std::vector<void*> pages, blocks;
    for (int64_t i = 0; i < (kTokens + 63) / 64; ++i) {
      pages_.emplace_back(kHeads * 2 * 64 * kDim);
      pages.push_back(pages_.back().data());
    }
    for (int64_t i = 0; i < kBlocks; ++i) {
      blocks_.emplace_back(block_elements);
      blocks.push_back(blocks_.back().data());
    }
    page_table_ = std::make_unique<DeviceArray<void*>>(pages);
    block_table_ = std::make_unique<DeviceArray<void*>>(blocks);
    sequences_ = std::make_unique<DeviceArray<AtpSequence>>(std::vector<AtpSequence>{s});
    Write();
    Compress();
  }

  // Rounds as the cache does.
  const double* key(int64_t head, int64_t token) const {
    return k_.data() + token * kWidth + head * kDim;
  }
  const double* value(int64_t head, int64_t token) const {
    return v_.data() + token * kWidth + head * kDim;
  }

  // A stored block: U [rank][kBlock], K' and V' [rank + 1][kDim] of one head.
  struct Stored {
    Matrix u, keys, values, kept;
  };
  Stored Read(int64_t block, int64_t head) const {
    const Matrix all = Widened(blocks_[block].Read());
    const AtpSequence& s = sequence_;
    const auto kBytes = static_cast<int64_t>(sizeof(T));
    const int64_t part = s.n_bases == 1 ? 0 : head;
    int64_t at =
        kHeads * s.kept_bytes / kBytes + (part + block) % s.n_bases * s.part_bytes / kBytes;
    Stored out;
    for (int64_t j = 0; j < rank_; ++j) {
      for (int64_t t = 0; t < kBlock; ++t) {
        out.u.push_back(all[at + (t / 64 * rank_ + j) * 64 + t % 64]);
      }
    }
    at += s.u_bytes / kBytes;
    if (s.n_bases == 1) at += head * (rank_ + 1) * (kKeyWidth + kValueWidth);
    for (int64_t j = 0; j <= rank_; ++j) {
      const double* key = all.data() + at + j * kKeyWidth;
      const double* value = all.data() + at + (rank_ + 1) * kKeyWidth + j * kValueWidth;
      out.keys.insert(out.keys.end(), key, key + kDim);
      out.values.insert(out.values.end(), value, value + kDim);
    }
    const double* kept = all.data() + head * s.kept_bytes / kBytes;
    if (s.n_refined > 0) out.kept.assign(kept, kept + kBlock * (kKeyWidth + kValueWidth));
    return out;
  }

  // Computes n rows from `position` on, as one tile or part by part: [n, kHeads * kGroup * kDim].
  enum class Way { kWhole, kSpread };
  std::vector<float> Attend(int64_t position, int64_t n, const std::vector<float>& q, Way way);

  std::vector<int32_t> chosen() const { return chosen_; }
  std::vector<std::vector<T>> Bits() const {
    std::vector<std::vector<T>> out;
    for (const auto& block : blocks_) out.push_back(block.Read());
    return out;
  }

 private:
  void Write() {
    const std::vector<float> k = Random(kTokens * kWidth, 1), v = Random(kTokens * kWidth, 2);
    std::vector<CacheSlot> slots;
    for (int32_t token = 0; token < kTokens; ++token) {
      slots.push_back({reinterpret_cast<std::byte*>(pages_[token / 64].data()), token, token % 64});
    }
    DeviceArray<float> keys(k), values(v);
    DeviceArray<CacheSlot> there(slots);
    KernelTestDevice().kernels().write_kv(KernelTestDevice(), {{there.data(), kTokens, model_.type},
                                                               0,
                                                               kHeads,
                                                               kDim,
                                                               keys.data(),
                                                               values.data(),
                                                               kWidth});
    ASSERT_TRUE(KernelTestDevice().Wait().ok());
    for (const auto& [from, to] : {std::pair{&k, &k_}, std::pair{&v, &v_}}) {
      for (float x : *from) {
        to->push_back(sizeof(T) == sizeof(float) ? x : ToFloat(ToBFloat16(x)));
      }
    }
  }

  void Compress() {
    std::vector<AtpCompressTask> tasks;
    AtpCompressArgs a;
    for (int32_t number = 0; number < kBlocks; ++number) {
      for (int32_t basis = 0; basis < sequence_.n_bases; ++basis) {
        AtpCompressTask t;
        t.number = number;
        t.kv_head = basis;
        t.n_heads = static_cast<int32_t>(kHeads / sequence_.n_bases);
        t.n = static_cast<int32_t>(kBlock - (number == 0 ? kSinks : 0));
        t.n_cols = static_cast<int32_t>(2 * kDim * t.n_heads);
        t.size = std::min(t.n, t.n_cols);
        t.n_found = static_cast<int32_t>(std::min<int64_t>(rank_, t.size));
        tasks.push_back(t);
      }
    }
    DeviceArray<AtpCompressTask> there(tasks);
    a.model = model_;
    a.sequences = sequences_->data();
    a.pages = page_table_->data();
    a.blocks = block_table_->data();
    a.tasks = there.data();
    a.n_tasks = there.size();
    a.max_n = a.max_left = kBlock;
    a.max_cols = a.max_size = tasks[0].n_cols;
    a.max_found = a.max_rank = rank_;
    a.max_heads = tasks[0].n_heads;
    a.m_stride = a.max_n * a.max_cols;
    a.gram_stride = a.max_size * a.max_size;
    a.basis_stride = rank_ * kBlock;
    a.projected_stride = rank_ * a.max_cols;
    a.columns_stride = 2 * a.max_cols + 2 + rank_;
    DeviceArray<float> m(a.n_tasks * a.m_stride), gram(a.n_tasks * a.gram_stride),
        basis(a.n_tasks * a.basis_stride), image(a.n_tasks * a.basis_stride),
        projected(a.n_tasks * a.projected_stride), columns(a.n_tasks * a.columns_stride);
    a.m = m.data(), a.gram = gram.data(), a.basis = basis.data(), a.image = image.data();
    a.projected = projected.data(), a.columns = columns.data();
    KernelTestDevice().kernels().atp_compress(KernelTestDevice(), a);
    ASSERT_TRUE(KernelTestDevice().Wait().ok());
  }

  const int64_t rank_;
  AtpModel model_;
  AtpSequence sequence_;
  std::vector<DeviceArray<T>> pages_, blocks_;
  std::unique_ptr<DeviceArray<void*>> page_table_, block_table_;
  std::unique_ptr<DeviceArray<AtpSequence>> sequences_;
  Matrix k_, v_;
  std::vector<int32_t> chosen_;
};

template <typename T>
std::vector<float> Sequence<T>::Attend(int64_t position, int64_t n, const std::vector<float>& q,
                                       Way way) {
  Device& device = KernelTestDevice();
  const bool refines = sequence_.n_refined > 0;
  AtpSequence s = sequence_;
  s.first_position = position;
  DeviceArray<AtpSequence> sequences(std::vector<AtpSequence>{s});
  AtpTile t;
  t.n_rows = static_cast<int32_t>(n * kGroup);
  t.n_far_blocks = position / kBlock;
  const int64_t per_part = kAtpPartTokens / kBlock, n_far = t.n_far_blocks * kBlock;
  t.n_far_parts = (t.n_far_blocks + per_part - 1) / per_part;
  t.n_parts = t.n_far_parts + (position + n + kAtpPartTokens - 1) / kAtpPartTokens -
              n_far / kAtpPartTokens + (refines ? 1 : 0);
  std::vector<AtpPartRun> items, late, scored;
  if (way == Way::kWhole) {
    items.push_back({0, AtpInto::kOutput, 0, t.n_parts});
  } else {
    for (int64_t part = 0; part < t.n_parts; ++part) {
      const bool is_late = refines && (part < t.n_far_parts || part == t.n_parts - 1);
      (is_late ? late : items).push_back({0, AtpInto::kSlot, part, 1});
    }
    if (refines) scored.push_back({0, AtpInto::kSlot, 0, t.n_far_blocks});
  }
  DeviceArray<AtpTile> tiles(std::vector<AtpTile>{t});
  DeviceArray<AtpPartRun> item_table(items), late_table(late), score_table(scored);
  DeviceArray<int32_t> chosen(std::max<int64_t>(1, kHeads * s.n_refined)), first_tile(1);
  DeviceArray<float> queries(q), out(n * kWidth * kGroup),
      slots(t.n_parts * kHeads * t.n_rows * (kDim + 2)),
      scores(std::max<int64_t>(1, kHeads * t.n_rows * n_far)),
      weights(std::max<int64_t>(1, kHeads * t.n_rows * n_far));
  AtpReadArgs read;
  read.model = model_;
  read.sequences = sequences.data();
  read.tiles = tiles.data();
  read.pages = page_table_->data();
  read.blocks = block_table_->data();
  read.max_rank = rank_;
  read.max_tile_rows = t.n_rows;
  read.q = queries.data();
  read.out = out.data();
  read.ld = read.ld_out = kWidth * kGroup;
  read.slots = slots.data();
  read.scores = scores.data();
  read.weights = weights.data();
  read.chosen = chosen.data();
  read.max_refined = s.n_refined;
  device.kernels().atp_attend(device, {read, item_table.data(), item_table.size()});
  if (refines) {
    device.kernels().atp_score(device, {read, score_table.data(), score_table.size()});
    device.kernels().atp_choose(device, {read, first_tile.data(), 1});
    device.kernels().atp_attend(device, {read, late_table.data(), late_table.size()});
  }
  if (way == Way::kSpread) device.kernels().atp_combine(device, {read, first_tile.data(), 1});
  chosen_ = chosen.Read();
  return out.Read();
}

// Computes row `position` of one query head in double over sinks, stored blocks and exact tokens,
// and over the tokens of `chosen` exactly. Returns by far token its share of all weights through
// its block.
struct Read {
  Matrix out, far_weights;
};
template <typename T>
Read Reference(const Sequence<T>& sequence, int64_t position, int64_t head, const float* q,
               const std::vector<int32_t>& chosen) {
  Matrix scores, values;
  const auto add = [&](const double* key, const double* value) {
    double score = 0;
    for (int64_t j = 0; j < kDim; ++j) score += q[j] * key[j];
    scores.push_back(score / std::sqrt(static_cast<double>(kDim)));
    values.insert(values.end(), value, value + kDim);
  };
  const int64_t n_far = position / kBlock * kBlock;
  for (int64_t t = 0; t <= position; ++t) {
    const bool is_far = t >= kSinks && t < n_far;
    if (!is_far || std::count(chosen.begin(), chosen.end(), t) > 0) {
      add(sequence.key(head, t), sequence.value(head, t));
    }
  }
  Read read{Matrix(kDim, 0.0), Matrix(n_far, 0.0)};
  std::vector<int64_t> far;
  const size_t n_exact = scores.size();
  for (int64_t block = 0; block < position / kBlock; ++block) {
    const auto stored = sequence.Read(block, head);
    const auto rank = static_cast<int64_t>(stored.u.size()) / kBlock;
    for (int64_t t = block == 0 ? kSinks : 0; t < kBlock; ++t) {
      if (std::count(chosen.begin(), chosen.end(), block * kBlock + t) > 0) continue;
      Matrix key(stored.keys.end() - kDim, stored.keys.end());
      Matrix value(stored.values.end() - kDim, stored.values.end());
      for (int64_t r = 0; r < rank; ++r) {
        for (int64_t j = 0; j < kDim; ++j) {
          key[j] += stored.u[r * kBlock + t] * stored.keys[r * kDim + j];
          value[j] += stored.u[r * kBlock + t] * stored.values[r * kDim + j];
        }
      }
      add(key.data(), value.data());
      far.push_back(block * kBlock + t);
    }
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - top);
  for (size_t i = 0; i < scores.size(); ++i) {
    for (int64_t j = 0; j < kDim; ++j) read.out[j] += scores[i] / sum * values[i * kDim + j];
    if (i >= n_exact) read.far_weights[far[i - n_exact]] = scores[i] / sum;
  }
  return read;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_KERNELS_CUDA_ATP_ATP_SEQUENCE_H_

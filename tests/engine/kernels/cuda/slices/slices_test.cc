// Attention over column tiles against its definition in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/device/kernels.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

constexpr int64_t kHeads = 2, kDim = 12, kTokens = 150, kLayer = 1, kPageWidth = 64;
constexpr int64_t kLd = 3 * kHeads * kDim;  // queries, keys, values

struct SliceCase {
  std::string name;
  int64_t n_kv_heads;
  bool has_keys;  // false: keys are values, rotated
  bool is_aligned;
  int64_t n_visible;
};

std::vector<float> Random(int64_t n, unsigned seed) {
  std::minstd_rand engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(engine);
  return x;
}

double Angle(int64_t position, int64_t j) {
  return static_cast<double>(position) * std::pow(100.0, -static_cast<double>(j) / (kDim / 2));
}

// Rows [0, kTokens) of one sequence, in a step of all but the last and one of the last.
class Scene {
 public:
  explicit Scene(const SliceCase& c) : case_(c) {
    rows_ = Random(kTokens * kLd, 1);
    weights_ = Random(kTokens * (kTokens + 1) / 2, 2);
    for (float& w : weights_) w *= 0.2f;
    n_tiles_ = c.n_kv_heads * (1 + (c.has_keys ? 1 : 0) + (c.is_aligned ? 1 : 0));
    for (int page = 0; page < 3; ++page) {
      page_floats_.emplace_back(2 * n_tiles_ * kDim * kPageWidth);
      pages_.push_back(reinterpret_cast<std::byte*>(page_floats_.back().data()));
    }
    rotations_.resize(3 * kDim * kPageWidth);
    for (int64_t t = 0; t < 3 * kPageWidth; ++t) {
      for (int64_t j = 0; j < kDim / 2; ++j) {
        float* page = rotations_.data() + t / kPageWidth * kDim * kPageWidth;
        page[j * kPageWidth + t % kPageWidth] = static_cast<float>(std::cos(Angle(t, j)));
        page[(kDim / 2 + j) * kPageWidth + t % kPageWidth] =
            static_cast<float>(std::sin(Angle(t, j)));
      }
    }
  }

  std::vector<float> Run() {
    DeviceArray<float> out(kTokens * kHeads * kDim);
    RunRows(0, kTokens - 1, out.data());
    RunRows(kTokens - 1, 1, out.data());
    return out.Read();
  }

  std::vector<double> Expected(int64_t row, int64_t head) const {
    const float* q = rows_.data() + row * kLd + head * kDim;
    const int64_t first = std::max<int64_t>(0, row - case_.n_visible + 1);
    std::vector<double> scores, out(kDim, 0.0);
    double sum = 0;
    for (int64_t t = first; t <= row; ++t) {
      const std::vector<double> k = Key(t, head);
      double s = 0;
      for (int64_t j = 0; j < kDim; ++j) s += q[j] * k[j];
      scores.push_back(std::exp(s / std::sqrt(static_cast<double>(kDim))));
      sum += scores.back();
    }
    for (int64_t t = first; t <= row; ++t) {
      const std::vector<double> v = Value(t, head);
      for (int64_t j = 0; j < kDim; ++j) out[j] += scores[t - first] / sum * v[j];
    }
    return out;
  }

 private:
  const float* Raw(int64_t t, int64_t head) const {
    const int64_t kv_head = head / (kHeads / case_.n_kv_heads);
    return rows_.data() + t * kLd + (2 * kHeads + kv_head) * kDim;
  }
  std::vector<double> Key(int64_t t, int64_t head) const {
    if (case_.has_keys) {
      const float* k = Raw(t, head) - kHeads * kDim;
      return {k, k + kDim};
    }
    const float* v = Raw(t, head);
    std::vector<double> k(kDim);
    for (int64_t j = 0; j < kDim / 2; ++j) {
      const double c = std::cos(Angle(t, j)), s = std::sin(Angle(t, j));
      k[j] = v[j] * c - v[kDim / 2 + j] * s;
      k[kDim / 2 + j] = v[kDim / 2 + j] * c + v[j] * s;
    }
    return k;
  }
  std::vector<double> Value(int64_t t, int64_t head) const {
    std::vector<double> v(Raw(t, head), Raw(t, head) + kDim);
    if (!case_.is_aligned) return v;
    std::fill(v.begin(), v.end(), 0.0);
    for (int64_t i = 0; i <= t; ++i) {
      for (int64_t j = 0; j < kDim; ++j) {
        v[j] += static_cast<double>(weights_[t * (t + 1) / 2 + i]) * Raw(i, head)[j];
      }
    }
    return v;
  }

  std::vector<SliceRows> Blocks(int64_t first, int64_t n, int64_t every) const {
    std::vector<SliceRows> blocks;
    for (int64_t row = 0; row < n;) {
      const int64_t size = std::min(every - (first + row) % every, n - row);
      blocks.push_back({0, static_cast<int32_t>(row), static_cast<int32_t>(size)});
      row += size;
    }
    return blocks;
  }

  void RunRows(int64_t first, int64_t n, float* out) {
    const DeviceArray<SliceSequence> sequences(std::vector<SliceSequence>{{first, first, 0}});
    const DeviceArray<std::byte*> pages(pages_);
    const DeviceArray<float> in(rows_), weights(weights_), rotations(rotations_);
    const SliceStep step{kLayer,      kHeads,           case_.n_kv_heads,      case_.has_keys,
                         kDim,        case_.is_aligned, StorageType::kFloat32, sequences.data(),
                         pages.data()};
    const float* q = in.data();
    const DeviceArray<SliceRows> rows(Blocks(first, n, 1)),
        to_align(Blocks(first, n, kSliceAlignRows)), to_attend(Blocks(first, n, kSliceAttendRows));
    const DeviceKernels& kernels = device_.kernels();
    kernels.slice_write(
        device_, {step, rows.data(), rows.size(), q + kHeads * kDim, q + 2 * kHeads * kDim, kLd});
    if (case_.is_aligned) {
      kernels.slice_align(device_, {step, to_align.data(), to_align.size(), weights.data()});
    }
    kernels.slice_attend(device_,
                         {step, to_attend.data(), to_attend.size(), n == 1 ? 1 : kSliceAttendRows,
                          case_.n_visible, rotations.data(), q, kLd, out, kHeads * kDim});
    EXPECT_TRUE(device_.Wait().ok());
  }

  const SliceCase case_;
  Device& device_ = KernelTestDevice();
  int64_t n_tiles_ = 0;
  std::vector<float> rows_, weights_, rotations_;
  std::vector<DeviceArray<float>> page_floats_;
  std::vector<std::byte*> pages_;
};

class CudaSlicesTest : public testing::TestWithParam<SliceCase> {
 protected:
  ~CudaSlicesTest() override { emulated::SetThreadOrder(emulated::ThreadOrder::kForward); }
};

TEST_P(CudaSlicesTest, EqualsTheDefinitionInDouble) {
  Scene scene(GetParam());
  const std::vector<float> out = scene.Run();
  for (int64_t row = 0; row < kTokens; ++row) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const std::vector<double> expected = scene.Expected(row, head);
      for (int64_t j = 0; j < kDim; ++j) {
        ASSERT_NEAR(out[(row * kHeads + head) * kDim + j], expected[j], 1e-5)
            << "row " << row << ", head " << head << ", column " << j;
      }
    }
  }
}

TEST_P(CudaSlicesTest, TheOrderOfThreadsChangesNoBits) {
  Scene forward(GetParam());
  const std::vector<float> expected = forward.Run();
  for (const auto order : {emulated::ThreadOrder::kBackward, emulated::ThreadOrder::kShuffled}) {
    emulated::SetThreadOrder(order);
    Scene scene(GetParam());
    const std::vector<float> out = scene.Run();
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaSlicesTest,
                         testing::Values(SliceCase{"efficient", 2, false, false, 1000},
                                         SliceCase{"sliding", 2, false, false, 70},
                                         SliceCase{"grouped", 1, false, false, 1000},
                                         SliceCase{"super_over_efficient", 2, false, true, 1000},
                                         SliceCase{"super_over_standard", 2, true, true, 1000},
                                         SliceCase{"super_grouped", 1, true, true, 1000}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lowkey

#ifndef LOWKEY_TESTS_ENGINE_KERNELS_KERNELS_TESTING_H_
#define LOWKEY_TESTS_ENGINE_KERNELS_KERNELS_TESTING_H_

#include <random>
#include <string>
#include <vector>

#include "engine/kernels/isa.h"
#include "engine/kernels/kernels.h"
#include "gtest/gtest.h"

namespace lowkey {

inline std::vector<float> Random(int64_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(n);
  for (float& x : out) x = normal(rng);
  return out;
}

struct KernelCase {
  const KernelTable* table;
  StorageType type;
  // Error of a sum relative to the sum of its terms' magnitudes. Both storage types are multiplied
  // in fp32, so one bound holds for both.
  double sum_tolerance;
  double row_tolerance;  // relative error of the row-wise functions
  // Relative error of a weight: a score minus the maximum is rounded, to 1e-5 where it is -160.
  double softmax_tolerance;
};

inline std::vector<KernelCase> AllKernelCases() {
  std::vector<KernelCase> out;
  for (const KernelTable* table : AvailableKernels()) {
    out.push_back({table, StorageType::kFloat32, 1e-6, 2e-6, 1e-5});
    out.push_back({table, StorageType::kBFloat16, 1e-6, 2e-6, 1e-5});
    out.push_back({table, StorageType::kInt8, 1e-6, 2e-6, 1e-5});
  }
  return out;
}

inline std::string KernelCaseName(const testing::TestParamInfo<KernelCase>& info) {
  const StorageType type = info.param.type;
  return std::string(info.param.table->name) + (type == StorageType::kFloat32    ? "_fp32"
                                                : type == StorageType::kBFloat16 ? "_bf16"
                                                                                 : "_int8");
}

class KernelTest : public testing::TestWithParam<KernelCase> {
 protected:
  const KernelTable& table() const { return *GetParam().table; }
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_KERNELS_KERNELS_TESTING_H_

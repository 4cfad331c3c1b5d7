#include "engine/kernels/cuda/grid/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/testing/emulated/emulated_device.h"

namespace lowkey {
namespace {

struct SumArgs {
  const float* x = nullptr;
  float* out = nullptr;
  bool skips_barrier = false;
};

// Each block turns its 64 numbers round through shared memory and sums them.
__global__ void TurnKernel(SumArgs a) {
  __shared__ float kept[64];
  __shared__ float scratch[kWarp];
  const int64_t at = int64_t{blockIdx.x} * 64;
  kept[threadIdx.x] = a.x[at + threadIdx.x];
  if (!a.skips_barrier) __syncthreads();
  const float turned = kept[63 - threadIdx.x];
  a.out[at + threadIdx.x] = turned + BlockSum(turned, scratch);
}

__global__ void LanesKernel(SumArgs a) {
  const int lane = threadIdx.x % kWarp;
  const auto x = static_cast<float>(lane);
  a.out[threadIdx.x] = __shfl_down_sync(0xffffffffu, x, 1) + 100 * __shfl_sync(0xffffffffu, x, 5) +
                       10000 * static_cast<float>(__popc(__ballot_sync(0xffffffffu, lane < 7)));
}

struct CopyArgs {
  const float* from = nullptr;
  float* out = nullptr;
  int n_waits = 0;
};

// Copies two groups, and waits for both, for the first or for none.
__global__ void CopyKernel(CopyArgs a) {
  LK_DYNAMIC_SHARED(float, memory);
  float* const mine = memory + threadIdx.x * 8;
  for (int i = 0; i < 8; ++i) mine[i] = -1;
  CopyAsync16(mine, a.from);
  CommitCopies();
  CopyAsync16(mine + 4, a.from + 4);
  CommitCopies();
  if (a.n_waits == 1) WaitCopies<1>();
  if (a.n_waits == 2) WaitCopies<0>();
  if (threadIdx.x == 5) {
    for (int i = 0; i < 8; ++i) a.out[i] = mine[i];
  }
}

// The first lane waits for the block, the others for their warp.
__global__ void DivergentKernel(SumArgs a) {
  (void)a;
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

#if defined(__SANITIZE_ADDRESS__)
struct SharedArgs {
  int64_t at = 0;
};
__global__ void PastTheEndKernel(SharedArgs a) {
  LK_DYNAMIC_SHARED(float, memory);
  memory[a.at] = 1;
}
#endif

std::vector<float> Numbers(int n) {
  std::vector<float> x(n);
  std::iota(x.begin(), x.end(), 1.0f);
  return x;
}

class GridTest : public testing::Test {
 protected:
  ~GridTest() override { emulated::SetThreadOrder(emulated::ThreadOrder::kForward); }

  std::vector<float> Turned(bool skips_barrier) {
    const std::vector<float> x = Numbers(192);
    std::vector<float> out(192);
    Launch(device_, TurnKernel, {.blocks_x = 3, .threads = 64},
           {x.data(), out.data(), skips_barrier});
    EXPECT_TRUE(device_.Wait().ok());
    return out;
  }

  EmulatedDevice device_;
};

TEST_F(GridTest, BlocksShareNumbersAcrossABarrier) {
  const std::vector<float> out = Turned(false);
  for (int block = 0; block < 3; ++block) {
    const float sum = 64.0f * (64 * block) + 64 * 65 / 2;
    for (int i = 0; i < 64; ++i) EXPECT_EQ(out[block * 64 + i], sum + 64 * block + 64 - i);
  }
}

TEST_F(GridTest, TheOrderOfThreadsShowsAMissingBarrier) {
  std::vector<std::vector<float>> whole, torn;
  for (const auto order : {emulated::ThreadOrder::kForward, emulated::ThreadOrder::kBackward,
                           emulated::ThreadOrder::kShuffled}) {
    emulated::SetThreadOrder(order);
    whole.push_back(Turned(false));
    torn.push_back(Turned(true));
  }
  EXPECT_EQ(whole[0], whole[1]);
  EXPECT_EQ(whole[0], whole[2]);
  EXPECT_NE(torn[0], torn[1]);
}

TEST_F(GridTest, LanesReadEachOther) {
  std::vector<float> out(32);
  Launch(device_, LanesKernel, {.threads = 32}, SumArgs{nullptr, out.data()});
  ASSERT_TRUE(device_.Wait().ok());
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], (i < 31 ? i + 1 : 31) + 500 + 70000);
}

TEST_F(GridTest, CopiesAreThereWhenTheyAreWaitedForAndNotBefore) {
  const std::vector<float> x = Numbers(8);
  for (int n_waits = 0; n_waits <= 2; ++n_waits) {
    std::vector<float> out(8), expected(8, -1);
    std::copy_n(x.begin(), 4 * n_waits, expected.begin());
    Launch(device_, CopyKernel, {.threads = 32, .shared_bytes = 32 * 8 * sizeof(float)},
           CopyArgs{x.data(), out.data(), n_waits});
    ASSERT_TRUE(device_.Wait().ok());
    EXPECT_EQ(out, expected) << n_waits;
  }
}

TEST_F(GridTest, WaitingAtDifferentBarriersEndsTheProcess) {
  Launch(device_, DivergentKernel, {.threads = 32}, SumArgs{});
  EXPECT_DEATH(device_.Wait().IgnoreError(), "check failed");
}

TEST_F(GridTest, WorkRunsInItsOrderWhenItIsWaitedFor) {
  const std::vector<float> x = Numbers(64);
  std::vector<float> out(64), back(64);
  device_.Upload(x.data(), out.data(), 64 * sizeof(float));
  EXPECT_EQ(out[0], 0);
  Launch(device_, TurnKernel, {.threads = 64}, SumArgs{out.data(), out.data()});
  ASSERT_TRUE(device_.Download(out.data(), back.data(), 64 * sizeof(float)).ok());
  EXPECT_EQ(back[0], 64 + 64 * 65 / 2);
}

TEST_F(GridTest, RepeatedWorkReadsWhatIsThereNow) {
  std::vector<float> x = Numbers(64), out(64);
  for (int i = 0; i < 3; ++i) {
    device_.Repeat(7, [&] {
      Launch(device_, TurnKernel, {.threads = 64}, SumArgs{x.data(), out.data()});
    });
    ASSERT_TRUE(device_.Wait().ok());
    EXPECT_EQ(out[63], x[0] + std::accumulate(x.begin(), x.end(), 0.0f));
    x[0] += 10;
  }
  EXPECT_EQ(device_.n_repeats(), 1) << "kept at the second time, repeated at the third";
}

TEST_F(GridTest, ABrokenDeviceStaysBroken) {
  std::vector<float> out(64);
  const std::vector<float> x = Numbers(64);
  device_.Break(absl::InternalError("emulated: fault"));
  Launch(device_, TurnKernel, {.threads = 64}, SumArgs{x.data(), out.data()});
  EXPECT_EQ(device_.Wait().message(), "emulated: fault");
  EXPECT_EQ(device_.Wait().message(), "emulated: fault");
  EXPECT_EQ(out[0], 0);
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(GridTest, AnAccessPastSharedMemoryIsSeen) {
  EXPECT_DEATH(
      {
        Launch(device_, PastTheEndKernel, {.threads = 32, .shared_bytes = 64}, SharedArgs{16});
        device_.Wait().IgnoreError();
      },
      "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace lowkey

#ifndef LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_WARPGROUP_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_WARPGROUP_H_

// warpgroup.h for a C++ compiler. Only warpgroup.h includes it.

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/grid/mma.h"

namespace lowkey {
namespace emulated {

// Groups of products of a thread that nobody has waited for; the last one is open.
using PendingProducts = std::deque<std::vector<std::function<void()>>>;
inline PendingProducts& Pending() {
  static thread_local std::vector<PendingProducts> by_thread(1024);
  PendingProducts& pending = by_thread[place.thread.x];
  if (pending.empty()) pending.emplace_back();
  return pending;
}

// Returns number `column` of row `row`, where `tile` is a tile plus the place in a row: pieces are
// found by the address, as the device finds them.
inline float InTile(const uint16_t* tile, int row, int column) {
  const uintptr_t plain = reinterpret_cast<uintptr_t>(tile) + 128 * row + 2 * column;
  return BFloat16ToFloat(*reinterpret_cast<const uint16_t*>(plain ^ (plain >> 7 & 7) << 4));
}

}  // namespace emulated

template <typename T, int n>
void PinRegisters(T (&)[n]) {}
inline void BeginProducts() {}
inline void ShowTiles() {}
inline void CommitProducts() { emulated::Pending().emplace_back(); }

// The thread computes its sums when it waits for them, from what the tiles hold then.
template <int n>
void WaitProducts() {
  emulated::PendingProducts& pending = emulated::Pending();
  LK_CHECK(pending.back().empty());  // else the last products are in no group
  while (pending.size() > n + 1) {
    for (const auto& product : pending.front()) product();
    pending.pop_front();
  }
}

template <int kColumns>
void MultiplyWarpgroup(float (&c)[kColumns / 2], const uint16_t* a, const uint16_t* b, bool adds) {
  LK_CHECK(reinterpret_cast<uintptr_t>(a) % 128 % 32 == 0);
  LK_CHECK(reinterpret_cast<uintptr_t>(b) % 128 % 32 == 0);
  const int thread = static_cast<int>(emulated::place.thread.x) % 128;
  const int warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
  emulated::Pending().back().push_back([&c, a, b, adds, warp, g, t] {
    for (int i = 0; i < kColumns / 2; ++i) {
      const int row = 16 * warp + g + (i % 4 < 2 ? 0 : 8), column = i / 4 * 8 + 2 * t + i % 2;
      float sum = adds ? c[i] : 0;
      for (int k = 0; k < 16; ++k) {
        sum += emulated::InTile(a, row, k) * emulated::InTile(b, column, k);
      }
      c[i] = sum;
    }
  });
}

template <int kColumns>
void AddWarpgroupTransposed(float (&c)[kColumns / 2], const uint32_t (&a)[4], const uint16_t* b,
                            int64_t stride) {
  LK_CHECK(reinterpret_cast<uintptr_t>(b) % 1024 == 0);
  const int t = emulated::LaneIndex() % 4;
  // Four lanes together have rows g and g + 8 of A.
  std::array<std::array<float, 16>, 2> rows;
  emulated::ExchangeInWarp(&a, sizeof(a), [&](const auto* lanes) {
    for (int k = 0; k < 16; ++k) {
      for (int upper = 0; upper < 2; ++upper) {
        uint32_t word;
        const size_t at = sizeof(word) * (k / 8 * 2 + upper);
        std::memcpy(&word, lanes[emulated::LaneIndex() / 4 * 4 + k % 8 / 2] + at, sizeof(word));
        rows[upper][k] = emulated::HalfOf(word, k % 2);
      }
    }
  });
  emulated::Pending().back().push_back([&c, rows, b, stride, t] {
    for (int i = 0; i < kColumns / 2; ++i) {
      const int column = i / 4 * 8 + 2 * t + i % 2;
      for (int k = 0; k < 16; ++k) {
        c[i] += rows[i % 4 / 2][k] * emulated::InTile(b + column / 64 * stride, k, column % 64);
      }
    }
  });
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_EMULATED_WARPGROUP_H_

#ifndef LOWKEY_ENGINE_KERNELS_CUDA_ATP_VIEWS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_ATP_VIEWS_H_

// Views of keys and values for kernels of atp. T is the type of all of them. Included by .cu files.

#include "engine/base/round_up.h"
#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/device/atp.h"

namespace lowkey::atp {

inline constexpr int kPage = kPageTokens;

template <typename T>
struct PageView {
  T* keys = nullptr;    // [64][head_dim]
  T* values = nullptr;  // [64][head_dim]
};

template <typename T>
__device__ __forceinline__ PageView<T> ViewPage(const AtpModel& m, void* page, int64_t layer,
                                                int64_t head) {
  const int64_t at = (layer * m.n_kv_heads + head) * kPage * 2 * m.head_dim;
  T* keys = static_cast<T*>(page) + at;
  return {keys, keys + kPage * m.head_dim};
}

// One KV head of a block at one layer, in the model's type (rows.h has the coded forms).
template <typename T>
struct BlockView {
  T* u = nullptr;       // [block_tokens / 64][rank][64]
  T* keys = nullptr;    // [rank + 1][key_width]
  T* values = nullptr;  // [rank + 1][value_width]
  T* kept = nullptr;    // [block_tokens][key_width + value_width]
};

template <typename T>
__device__ __forceinline__ BlockView<T> ViewBlock(const AtpModel& m, const AtpSequence& s,
                                                  void* slab, int64_t number, int64_t layer,
                                                  int64_t head) {
  const bool shared = s.n_bases == 1;
  const int64_t part = layer * s.n_bases + (shared ? 0 : head), n_parts = m.n_layers * s.n_bases;
  char* base = static_cast<char*>(slab);
  char* at =
      base + m.n_layers * m.n_kv_heads * s.kept_bytes + (part + number) % n_parts * s.part_bytes;
  BlockView<T> view;
  view.u = reinterpret_cast<T*>(at);
  at += s.u_bytes + (shared ? head * (s.key_bytes + s.value_bytes) : 0);
  view.keys = reinterpret_cast<T*>(at);
  view.values = reinterpret_cast<T*>(at + s.key_bytes);
  view.kept = reinterpret_cast<T*>(base + (layer * m.n_kv_heads + head) * s.kept_bytes);
  return view;
}

// Returns how many tokens of a block its basis leaves out.
__device__ __forceinline__ int64_t SinksOf(const AtpSequence& s, const AtpCompressTask& t) {
  return t.number == 0 ? s.n_sinks : 0;
}

}  // namespace lowkey::atp

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_ATP_VIEWS_H_

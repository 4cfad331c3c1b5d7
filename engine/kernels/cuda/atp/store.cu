// Stores principal blocks in the cache's type, or in codes of 8 or 4 bits.

#include "engine/kernels/cuda/atp/rows.h"
#include "engine/kernels/cuda/atp/views.h"
#include "engine/kernels/cuda/attention/coding.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

using atp::kPage;

constexpr int kThreads = 128;
constexpr float kMost8 = 127.0f, kMost4 = 7.0f;

__device__ inline float CodeOf(float x, float scale, float most) {
  const float units = rintf(x / scale);
  if (units != units) return 0;  // 0 / 0, or x is NaN
  return fminf(fmaxf(units, -most), most);
}

// Packs one component of U, number(token), in 4 bits. One warp packs 32 tokens.
template <typename Number>
__device__ inline void PackComponent(const AtpSequence& s, int64_t component, uint8_t* u,
                                     Number number) {
  const int lane = threadIdx.x % kWarp;
  const int64_t n_groups = s.block_tokens / atp::kPackedTokens;
  for (int64_t group = threadIdx.x / kWarp; group < n_groups; group += kThreads / kWarp) {
    uint8_t* to = u + group * atp::PackedGroupBytes(s.rank);
    const float x = number(group * atp::kPackedTokens + lane);
    const uint16_t scale = FloatToBFloat16(WarpMax(fabsf(x)) / kMost4);
    const int code = static_cast<int>(CodeOf(x, BFloat16ToFloat(scale), kMost4)) + 8;
    const int next = __shfl_xor_sync(0xffffffffu, code, 1);
    if (lane == 0) reinterpret_cast<uint16_t*>(to)[component] = scale;
    if (lane % 2 == 0) {
      to[2 * s.rank + component * (atp::kPackedTokens / 2) + lane / 2] =
          static_cast<uint8_t>(code | next << 4);
    }
  }
}

// Stores component blockIdx.x of U, transposed tile by tile: [block_tokens / 64][rank][64], 0 for
// sinks. With 8 bits the scale is left beside the columns.
template <typename T>
__global__ __launch_bounds__(kThreads) void StoreBasisKernel(AtpCompressArgs a) {
  __shared__ float scratch[kWarp];
  const AtpCompressTask t = a.tasks[blockIdx.y];
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t component = blockIdx.x, n_sinks = atp::SinksOf(s, t);
  if (s.is_linear || component >= s.rank) return;
  const float* found = (t.n <= t.n_cols ? a.basis : a.image) + blockIdx.y * a.basis_stride;
  const auto number = [&](int64_t token) {
    const bool is_zero = token < n_sinks || component >= t.n_found;
    return is_zero ? 0.0f : found[component * t.n + token - n_sinks];
  };
  T* u = atp::ViewBlock<T>(a.model, s, a.blocks[s.first_block + t.number], t.number, a.layer,
                           t.kv_head)
             .u;
  if (s.u_bits == 4) {
    return PackComponent(s, component, reinterpret_cast<uint8_t*>(u), number);
  }
  float scale = 1;
  if (s.u_bits == 8) {
    float most = 0;
    for (int64_t i = threadIdx.x; i < s.block_tokens; i += kThreads) {
      most = fmaxf(most, fabsf(number(i)));
    }
    scale = BlockMax(most, scratch) / kMost8;
    a.columns[blockIdx.y * a.columns_stride + 2 * a.max_cols + 2 + component] = scale;
  }
  for (int64_t i = threadIdx.x; i < s.block_tokens; i += kThreads) {
    const int64_t at = (i / kPage * s.rank + component) * kPage + i % kPage;
    if (s.u_bits == 8) {
      reinterpret_cast<int8_t*>(u)[at] = static_cast<int8_t>(CodeOf(number(i), scale, kMost8));
    } else {
      u[at] = FromFloat<T>(number(i));
    }
  }
}

// Stores row `row` of K' or V', numbers number(column). In codes the mean, row `rank`, is two rows:
// the second codes the residual of the first.
template <typename T, typename Number>
__device__ inline void StoreRow(const AtpSequence& s, int64_t row, int64_t width, T* rows,
                                Number number) {
  __shared__ float scratch[kWarp];
  if (s.principal_bits == 0) {
    for (int64_t j = threadIdx.x; j < width; j += kThreads) {
      rows[row * width + j] = FromFloat<T>(number(j));
    }
    return;
  }
  constexpr int kMine = static_cast<int>(kAtpMostHeadDim) / kThreads;
  float x[kMine];
  for (int k = 0; k < kMine; ++k) {
    const int64_t j = threadIdx.x + k * kThreads;
    x[k] = j < width ? number(j) : 0.0f;
  }
  auto* codes = reinterpret_cast<int8_t*>(rows);
  auto* scales = reinterpret_cast<float*>(codes + atp::PrincipalScalesAt(width, s.rank));
  for (int64_t at = row; at <= (row == s.rank ? row + 1 : row); ++at) {
    float most = 0;
    for (float one : x) most = fmaxf(most, fabsf(one));
    const float scale = BlockMax(most, scratch) / kMost8;
    if (threadIdx.x == 0) scales[at] = scale;
    for (int k = 0; k < kMine; ++k) {
      const int64_t j = threadIdx.x + k * kThreads;
      const float code = CodeOf(x[k], scale, kMost8);
      if (j < width) codes[at * width + j] = static_cast<int8_t>(code);
      x[k] = fmaf(-scale, code, x[k]);
    }
  }
}

// Stores row blockIdx.x of K' and V' of one KV head: U^T times the centered columns, times the
// scale of U's codes; the last row is the means.
template <typename T>
__global__ __launch_bounds__(kThreads) void StorePrincipalKernel(AtpCompressArgs a) {
  const AtpModel& m = a.model;
  const AtpCompressTask t = a.tasks[blockIdx.z];
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t row = blockIdx.x, d = m.head_dim;
  if (row > s.rank || static_cast<int>(blockIdx.y) >= t.n_heads) return;
  const float* columns = a.columns + blockIdx.z * a.columns_stride;
  const float* projected = a.projected + blockIdx.z * a.projected_stride + row * t.n_cols;
  const atp::BlockView<T> block = atp::ViewBlock<T>(m, s, a.blocks[s.first_block + t.number],
                                                    t.number, a.layer, t.kv_head + blockIdx.y);
  const bool is_scaled = t.n_merged == 0 && s.u_bits == 8 && row < s.rank;
  const float scale = is_scaled ? columns[2 * a.max_cols + 2 + row] : 1.0f;
  const auto number = [&](int64_t first, int64_t j) {
    if (j >= d) return 0.0f;
    if (row == s.rank) return columns[first + j];
    return row < t.n_found ? projected[first + j] * columns[a.max_cols + first + j] * scale : 0.0f;
  };
  const int64_t keys = 2 * blockIdx.y * d, values = keys + d;
  StoreRow(s, row, m.key_width, block.keys, [&](int64_t j) { return number(keys, j); });
  StoreRow(s, row, m.value_width, block.values, [&](int64_t j) { return number(values, j); });
}

// Keeps a key or value x [d], padded with zeros, in 8 bits. One warp codes 32 columns.
template <typename T>
__device__ inline void KeepCoded(const T* x, int d, int width, char* row) {
  const int lane = threadIdx.x % kWarp, n_groups = (width + kWarp - 1) / kWarp;
  for (int group = threadIdx.x / kWarp; group < n_groups; group += kThreads / kWarp) {
    const int j = group * atp::kKeptGroup + lane, at = j < width ? j : width - 1;
    const float number = at < d ? ToFloat(x[at]) : 0.0f;
    const float high = WarpMax(number), low = -WarpMax(-number);
    const Coding coding(low, high, 8);
    if (j < width)
      reinterpret_cast<int8_t*>(row)[j] = static_cast<int8_t>(coding.Code(number) - 128);
    auto* numbers = reinterpret_cast<uint16_t*>(row + width) + 2 * group;
    if (lane < 2) numbers[lane] = static_cast<uint16_t>(coding.numbers >> (16 * lane));
  }
}

// Keeps token blockIdx.x of a block, of one KV head, for refine.
template <typename T>
__global__ __launch_bounds__(kThreads) void StoreKeptKernel(AtpCompressArgs a) {
  const AtpModel& m = a.model;
  const AtpCompressTask t = a.tasks[blockIdx.z];
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t token = blockIdx.x, head = t.kv_head + blockIdx.y;
  if (s.n_refined == 0 || token >= s.block_tokens || static_cast<int>(blockIdx.y) >= t.n_heads) {
    return;
  }
  const int64_t page = s.first_page + (t.number * s.block_tokens + token) / kPage;
  const atp::PageView<T> from = atp::ViewPage<T>(m, a.pages[page], a.layer, head);
  const int64_t d = m.head_dim;
  const T *key = from.keys + token % kPage * d, *value = from.values + token % kPage * d;
  T* kept =
      atp::ViewBlock<T>(m, s, a.blocks[s.first_block + t.number], t.number, a.layer, head).kept;
  if (s.kept_bits == 8) {
    char* row = reinterpret_cast<char*>(kept) + token * (s.kept_bytes / s.block_tokens);
    KeepCoded(key, static_cast<int>(d), static_cast<int>(m.key_width), row);
    KeepCoded(value, static_cast<int>(d), static_cast<int>(m.value_width),
              row + atp::KeptRowBytes(m.key_width));
    return;
  }
  T* to = kept + token * (m.key_width + m.value_width);
  for (int64_t j = threadIdx.x; j < m.key_width + m.value_width; j += kThreads) {
    T x{};
    if (j < d) x = key[j];
    if (j >= m.key_width && j - m.key_width < d) x = value[j - m.key_width];
    to[j] = x;
  }
}

template <typename T>
void StorePrincipal(Device& device, const AtpCompressArgs& a) {
  Launch(device, StorePrincipalKernel<T>,
         {.blocks_x = a.max_rank + 1,
          .blocks_y = a.max_heads,
          .blocks_z = a.n_tasks,
          .threads = kThreads},
         a);
}

template <typename T>
void Store(Device& device, const AtpCompressArgs& a) {
  const int64_t max_tokens = (a.max_n + kPage - 1) / kPage * kPage;  // sinks fill no page
  Launch(device, StoreBasisKernel<T>,
         {.blocks_x = a.max_rank, .blocks_y = a.n_tasks, .threads = kThreads}, a);
  StorePrincipal<T>(device, a);
  Launch(
      device, StoreKeptKernel<T>,
      {.blocks_x = max_tokens, .blocks_y = a.max_heads, .blocks_z = a.n_tasks, .threads = kThreads},
      a);
}

}  // namespace

void AtpStore(Device& device, const AtpCompressArgs& args) {
  (args.model.type == StorageType::kFloat32 ? Store<float> : Store<uint16_t>)(device, args);
}

void AtpStorePrincipal(Device& device, const AtpCompressArgs& args) {
  (args.model.type == StorageType::kFloat32 ? StorePrincipal<float>
                                            : StorePrincipal<uint16_t>)(device, args);
}

}  // namespace lowkey

// Keys and values into pages; closed blocks into principal keys and values (ATP, Eq. 5-6).

#include "engine/kernels/cuda/atp.h"
#include "engine/kernels/cuda/atp_basis.h"
#include "engine/kernels/cuda/atp_views.h"
#include "engine/kernels/cuda/grid.h"

namespace lowkey {
namespace {

using atp::kPage;

constexpr int kThreads = 256;

// A warp a row and KV head.
template <typename T>
__global__ void WriteKernel(AtpWriteArgs a) {
  const AtpModel& m = a.model;
  const int64_t task = int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (task >= a.n_rows * m.n_kv_heads) return;
  const int64_t row = task / m.n_kv_heads, head = task % m.n_kv_heads;
  const AtpSequence& s = a.sequences[a.row_sequences[row]];
  const int64_t offset = a.row_offsets[row], position = s.first_position + offset;
  const atp::PageView<T> page =
      atp::ViewPage<T>(m, a.pages[s.first_page + position / kPage], a.layer, head);
  T* key = page.keys + position % kPage * m.head_dim;
  T* value = page.values + position % kPage * m.head_dim;
  const int64_t from = (s.first_row + offset) * a.ld + head * m.head_dim;
  for (int64_t j = threadIdx.x % kWarp; j < m.head_dim; j += kWarp) {
    key[j] = FromFloat<T>(a.k[from + j]);
    value[j] = FromFloat<T>(a.v[from + j]);
  }
}

// Tokens of the block that are not of the matrix.
__device__ __forceinline__ int64_t SinksOf(const AtpSequence& s, const AtpCompressTask& t) {
  return t.number == 0 ? s.n_sinks : 0;
}

// Keys or values of one KV head: mean of each column taken off, then scaled to unit Frobenius norm,
// so that keys and values weigh the same in the basis. What is not finite counts as zero.
template <typename T>
__global__ __launch_bounds__(kThreads) void GatherKernel(AtpCompressArgs a) {
  __shared__ float scratch[kWarp];
  const AtpModel& m = a.model;
  const AtpCompressTask t = a.tasks[blockIdx.z];
  if (static_cast<int>(blockIdx.x) >= t.n_heads) return;
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t d = m.head_dim, n_sinks = SinksOf(s, t);
  const bool of_values = blockIdx.y == 1;
  const int64_t first_column = (2 * blockIdx.x + blockIdx.y) * d;
  float* columns = a.columns + blockIdx.z * a.columns_stride;
  float* matrix = a.m + blockIdx.z * a.m_stride + first_column;
  void* const* pages = a.pages + s.first_page + t.number * s.block_tokens / kPage;
  const auto row_of = [&](int64_t i) {
    const int64_t at = i + n_sinks;
    const atp::PageView<T> page =
        atp::ViewPage<T>(m, pages[at / kPage], a.layer, t.kv_head + blockIdx.x);
    return of_values ? page.values + at % kPage * d : page.keys + at % kPage * d;
  };
  float energy = 0;
  for (int64_t j = threadIdx.x; j < d; j += kThreads) {
    float mean = 0;
    for (int64_t i = 0; i < t.n; ++i) mean += ToFloat(row_of(i)[j]);
    mean /= static_cast<float>(t.n);
    columns[first_column + j] = mean;
    for (int64_t i = 0; i < t.n; ++i) {
      const float x = ToFloat(row_of(i)[j]) - mean;
      energy = fmaf(x, x, energy);
    }
  }
  energy = BlockSum(energy, scratch);
  const bool finite = energy < INFINITY;  // and a number
  const float norm = fmaxf(sqrtf(finite ? energy : 0.0f), 1e-12f);
  for (int64_t j = threadIdx.x; j < d; j += kThreads) {
    columns[a.max_cols + first_column + j] = norm;
    const float mean = columns[first_column + j];
    for (int64_t i = 0; i < t.n; ++i) {
      matrix[i * t.n_cols + j] = finite ? (ToFloat(row_of(i)[j]) - mean) / norm : 0.0f;
    }
  }
}

// Of two blocks that become one: their principal rows, their means' difference, and what makes the
// store kernel write U^T m and the joint mean.
template <typename T>
__global__ __launch_bounds__(kThreads) void GatherMergedKernel(AtpCompressArgs a) {
  const AtpModel& m = a.model;
  const AtpCompressTask t = a.tasks[blockIdx.x];
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t d = m.head_dim, before = t.number - t.n_merged;
  const auto view = [&](int64_t number) {
    return atp::ViewBlock<T>(m, s, a.blocks[s.first_block + number], number, a.layer, t.kv_head);
  };
  const atp::BlockView<T> left = view(before), right = view(t.number);
  const auto n_left = static_cast<float>(s.NumTokens(before));
  const auto n_right = static_cast<float>(t.n_merged * s.block_tokens);
  const float share = n_left / (n_left + n_right), weight = sqrtf(share * n_right);
  float* columns = a.columns + blockIdx.x * a.columns_stride;
  float* matrix = a.m + blockIdx.x * a.m_stride;
  for (int64_t j = threadIdx.x; j < 2 * d; j += kThreads) {
    const auto number = [&](const atp::BlockView<T>& block, int64_t row) {
      return ToFloat(j < d ? block.keys[row * m.key_width + j]
                           : block.values[row * m.value_width + j - d]);
    };
    for (int64_t row = 0; row < s.rank; ++row) {
      matrix[row * t.n_cols + j] = number(left, row);
      matrix[(s.rank + row) * t.n_cols + j] = number(right, row);
    }
    const float difference = number(left, s.rank) - number(right, s.rank);
    matrix[2 * s.rank * t.n_cols + j] = weight * difference;
    columns[j] = fmaf(share, difference, number(right, s.rank));
    columns[a.max_cols + j] = 1.0f;
  }
}

// U, transposed tile by tile: [block_tokens / 64][rank][64], 0 for sinks.
template <typename T>
__global__ void StoreBasisKernel(AtpCompressArgs a) {
  const AtpCompressTask t = a.tasks[blockIdx.y];
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s.is_linear || i >= s.rank * s.block_tokens) return;
  const int64_t component = i / kPage % s.rank;
  const int64_t row = i / kPage / s.rank * kPage + i % kPage - SinksOf(s, t);
  const float* u = (t.n <= t.n_cols ? a.basis : a.image) + blockIdx.y * a.basis_stride;
  const bool is_zero = row < 0 || component >= t.n_found;
  atp::ViewBlock<T>(a.model, s, a.blocks[s.first_block + t.number], t.number, a.layer, t.kv_head)
      .u[i] = FromFloat<T>(is_zero ? 0.0f : u[component * t.n + row]);
}

// Row blockIdx.x of K' and V' of one KV head: U^T times the centred columns; the last their means.
template <typename T>
__global__ void StorePrincipalKernel(AtpCompressArgs a) {
  const AtpModel& m = a.model;
  const AtpCompressTask t = a.tasks[blockIdx.z];
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t row = blockIdx.x, d = m.head_dim;
  if (row > s.rank || static_cast<int>(blockIdx.y) >= t.n_heads) return;
  const float* columns = a.columns + blockIdx.z * a.columns_stride;
  const float* projected = a.projected + blockIdx.z * a.projected_stride + row * t.n_cols;
  const atp::BlockView<T> block = atp::ViewBlock<T>(m, s, a.blocks[s.first_block + t.number],
                                                    t.number, a.layer, t.kv_head + blockIdx.y);
  const auto number = [&](int64_t column) {
    if (row == s.rank) return columns[column];
    return row < t.n_found ? projected[column] * columns[a.max_cols + column] : 0.0f;
  };
  const int64_t first = 2 * blockIdx.y * d;
  for (int64_t j = threadIdx.x; j < m.key_width; j += blockDim.x) {
    block.keys[row * m.key_width + j] = FromFloat<T>(j < d ? number(first + j) : 0.0f);
  }
  for (int64_t j = threadIdx.x; j < m.value_width; j += blockDim.x) {
    block.values[row * m.value_width + j] = FromFloat<T>(j < d ? number(first + d + j) : 0.0f);
  }
}

// Token blockIdx.x of a block, of one KV head, for refine.
template <typename T>
__global__ void StoreKeptKernel(AtpCompressArgs a) {
  const AtpModel& m = a.model;
  const AtpCompressTask t = a.tasks[blockIdx.z];
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t token = blockIdx.x, head = t.kv_head + blockIdx.y;
  if (s.n_refined == 0 || token >= s.block_tokens || static_cast<int>(blockIdx.y) >= t.n_heads) {
    return;
  }
  const int64_t page = s.first_page + (t.number * s.block_tokens + token) / kPage;
  const atp::PageView<T> from = atp::ViewPage<T>(m, a.pages[page], a.layer, head);
  T* to =
      atp::ViewBlock<T>(m, s, a.blocks[s.first_block + t.number], t.number, a.layer, head).kept +
      token * (m.key_width + m.value_width);
  const int64_t slot = token % kPage, d = m.head_dim;
  for (int64_t j = threadIdx.x; j < m.key_width + m.value_width; j += blockDim.x) {
    T x{};
    if (j < d) x = from.keys[slot * d + j];
    if (j >= m.key_width && j - m.key_width < d) {
      x = from.values[slot * d + j - m.key_width];
    }
    to[j] = x;
  }
}

int64_t Tiles(int64_t n, int64_t width) { return (n + width - 1) / width; }

template <typename T>
void StorePrincipal(Device& device, const AtpCompressArgs& a) {
  Launch(
      device, StorePrincipalKernel<T>,
      {.blocks_x = a.max_rank + 1, .blocks_y = a.max_heads, .blocks_z = a.n_tasks, .threads = 128},
      a);
}

template <typename T>
void Store(Device& device, const AtpCompressArgs& a) {
  const int64_t max_tokens = Tiles(a.max_n, kPage) * kPage;  // sinks are fewer than a page
  Launch(device, StoreBasisKernel<T>,
         {.blocks_x = Tiles(a.max_rank * max_tokens, kThreads),
          .blocks_y = a.n_tasks,
          .threads = kThreads},
         a);
  StorePrincipal<T>(device, a);
  Launch(device, StoreKeptKernel<T>,
         {.blocks_x = max_tokens, .blocks_y = a.max_heads, .blocks_z = a.n_tasks, .threads = 64},
         a);
}

template <typename T>
void Compress(Device& device, const AtpCompressArgs& a) {
  Launch(device, GatherKernel<T>,
         {.blocks_x = a.max_heads, .blocks_y = 2, .blocks_z = a.n_tasks, .threads = kThreads}, a);
  AtpFindBasis(device, a);
  Store<T>(device, a);
}

template <typename T>
void Merge(Device& device, const AtpCompressArgs& a) {
  Launch(device, GatherMergedKernel<T>, {.blocks_x = a.n_tasks, .threads = kThreads}, a);
  AtpFindBasis(device, a);
  StorePrincipal<T>(device, a);
}

}  // namespace

void AtpWriteOnDevice(Device& device, const AtpWriteArgs& args) {
  const auto kernel =
      args.model.type == StorageType::kFloat32 ? WriteKernel<float> : WriteKernel<uint16_t>;
  const int64_t n_warps = args.n_rows * args.model.n_kv_heads;
  Launch(device, kernel, {.blocks_x = Tiles(n_warps * kWarp, kThreads), .threads = kThreads}, args);
}

void AtpCompressOnDevice(Device& device, const AtpCompressArgs& args) {
  if (args.n_tasks == 0) return;
  if (args.model.type == StorageType::kFloat32) return Compress<float>(device, args);
  Compress<uint16_t>(device, args);
}

void AtpMergeOnDevice(Device& device, const AtpCompressArgs& args) {
  if (args.n_tasks == 0) return;
  if (args.model.type == StorageType::kFloat32) return Merge<float>(device, args);
  Merge<uint16_t>(device, args);
}

}  // namespace lowkey

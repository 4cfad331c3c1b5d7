// Compresses closed blocks into principal keys and values (ATP, Eq. 5-6).

#include "engine/kernels/cuda/atp/rows.h"
#include "engine/kernels/cuda/atp/views.h"
#include "engine/kernels/cuda/grid/grid.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

using atp::kPage;

constexpr int kThreads = 256;

// Gathers keys or values of one KV head: takes the mean off each column, then scales to unit
// Frobenius norm, so that keys and values weigh the same in the basis. A matrix with a number that
// is not finite becomes zero.
template <typename T>
__global__ __launch_bounds__(kThreads) void GatherKernel(AtpCompressArgs a) {
  __shared__ float scratch[kWarp];
  const AtpModel& m = a.model;
  const AtpCompressTask t = a.tasks[blockIdx.z];
  if (static_cast<int>(blockIdx.x) >= t.n_heads) return;
  const AtpSequence& s = a.sequences[t.sequence];
  const int64_t d = m.head_dim, n_sinks = atp::SinksOf(s, t);
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
  const bool finite = energy < INFINITY;  // and not NaN
  const float norm = fmaxf(sqrtf(finite ? energy : 0.0f), 1e-12f);
  for (int64_t j = threadIdx.x; j < d; j += kThreads) {
    columns[a.max_cols + first_column + j] = norm;
    const float mean = columns[first_column + j];
    for (int64_t i = 0; i < t.n; ++i) {
      matrix[i * t.n_cols + j] = finite ? (ToFloat(row_of(i)[j]) - mean) / norm : 0.0f;
    }
  }
}

// Gathers two blocks that become one: their principal rows and the difference of their means, and
// the columns from which the store kernel writes U^T m and the joint mean.
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
      return j < d ? atp::PrincipalNumber(s, block.keys, m.key_width, row, j)
                   : atp::PrincipalNumber(s, block.values, m.value_width, row, j - d);
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

}  // namespace

void AtpCompressOnDevice(Device& device, const AtpCompressArgs& args) {
  if (args.n_tasks == 0) return;
  const bool wide = args.model.type == StorageType::kFloat32;
  Launch(device, wide ? GatherKernel<float> : GatherKernel<uint16_t>,
         {.blocks_x = args.max_heads, .blocks_y = 2, .blocks_z = args.n_tasks, .threads = kThreads},
         args);
  AtpFindBasis(device, args);
  AtpStore(device, args);
}

void AtpMergeOnDevice(Device& device, const AtpCompressArgs& args) {
  if (args.n_tasks == 0) return;
  const bool wide = args.model.type == StorageType::kFloat32;
  Launch(device, wide ? GatherMergedKernel<float> : GatherMergedKernel<uint16_t>,
         {.blocks_x = args.n_tasks, .threads = kThreads}, args);
  AtpFindBasis(device, args);
  AtpStorePrincipal(device, args);
}

}  // namespace lowkey

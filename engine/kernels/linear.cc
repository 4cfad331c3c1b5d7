#include "engine/kernels/linear.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// A panel of 256 rows of B is 16 KiB in fp32 and stays in L1 while the rows of A pass over it; 256
// rows of A by 256 are 256 KiB and stay in L2 while the panels pass.
constexpr int64_t kBlockK = 256;
constexpr int64_t kBlockRows = 256;
// Tasks a thread: enough to even out a core that another process slows down.
constexpr int64_t kTasksPerThread = 4;

// Rows first_row .. + n_rows of `part` into columns `column` .. of a packed panel.
void PackPanel(const TensorView& part, int64_t first_row, int64_t n_rows, int64_t panel,
               int64_t column, std::vector<float>& row, StorageType type, std::byte* out) {
  const int64_t n_in = part.shape[1];
  row.resize(n_in);
  for (int64_t j = 0; j < n_rows; ++j) {
    LoadFloats(part, (first_row + j) * n_in, n_in, row.data());
    const int64_t c = column + j;
    if (type == StorageType::kFloat32) {
      auto* to = reinterpret_cast<float*>(out);
      for (int64_t k = 0; k < n_in; ++k) to[k * panel + c] = row[k];
    } else {
      auto* to = reinterpret_cast<uint16_t*>(out);
      for (int64_t k = 0; k < n_in; ++k) {
        to[k / 2 * 2 * panel + 2 * c + k % 2] = ToBFloat16(row[k]).bits;
      }
    }
  }
}

// Rows of x as the kernels want them beside a bf16 weight: as they are, or in `scratch` rounded to
// bf16 or padded to an even length.
struct Activations {
  const std::byte* data = nullptr;
  int64_t stride = 0;
  int64_t element_bytes = 0;
};

Activations Prepare(const PackedWeight& w, const float* x, int64_t ldx, int64_t n_rows,
                    ThreadPool& pool, std::vector<float>& scratch) {
  const bool rounds = w.type() == StorageType::kBFloat16 && w.kernels().rounds_activations;
  if (!rounds && w.n_in() == w.n_in_padded()) {
    return {reinterpret_cast<const std::byte*>(x), ldx, sizeof(float)};
  }
  const int64_t element_bytes = rounds ? sizeof(uint16_t) : sizeof(float);
  const int64_t stride = w.n_in_padded();
  scratch.assign((n_rows * stride * element_bytes + 3) / 4, 0.0f);
  auto* out = reinterpret_cast<std::byte*>(scratch.data());
  pool.ParallelFor(n_rows, [&](int64_t i, int) {
    std::byte* row = out + i * stride * element_bytes;
    if (rounds) {
      w.kernels().to_bf16(x + i * ldx, reinterpret_cast<uint16_t*>(row), w.n_in());
    } else {
      std::copy_n(x + i * ldx, w.n_in(), reinterpret_cast<float*>(row));
    }
  });
  return {out, stride, element_bytes};
}

// Rows [row, row + n_rows), input elements [k, k + n_k), n_panels panels from p.
void MultiplyBlock(const PackedWeight& w, const Activations& a, int64_t row, int64_t n_rows,
                   int64_t k, int64_t n_k, int64_t p, int64_t n_panels, float* y, int64_t ldy) {
  const int64_t panel = w.kernels().panel_columns;
  const int64_t panel_elements = w.n_in_padded() * panel;
  const auto into = k == 0 ? GemmArgs::Into::kOverwrite : GemmArgs::Into::kAccumulate;
  const std::byte* a_block = a.data + (row * a.stride + k) * a.element_bytes;
  const std::byte* b_block = w.data() + (p * panel_elements + k * panel) * StorageBytes(w.type());
  float* c = y + row * ldy + p * panel;
  if (w.type() == StorageType::kFloat32) {
    w.kernels().gemm_f32({reinterpret_cast<const float*>(a_block), a.stride, b_block, panel,
                          panel_elements, c, ldy, n_rows, n_panels * panel, n_k, into});
  } else {
    w.kernels().gemm_bf16_pairs({a_block, a.stride, reinterpret_cast<const uint16_t*>(b_block),
                                 panel_elements, c, ldy, n_rows, n_panels * panel, n_k, into});
  }
}

}  // namespace

absl::StatusOr<PackedWeight> PackedWeight::Pack(absl::Span<const TensorView> parts,
                                                StorageType type, ThreadPool& pool,
                                                const KernelTable& kernels) {
  LK_CHECK(!parts.empty());
  const int64_t panel = kernels.panel_columns;
  PackedWeight w;
  w.kernels_ = &kernels;
  w.type_ = type;
  w.n_in_ = parts[0].shape[1];
  for (const TensorView& p : parts) w.n_out_ += p.shape[0];
  const int64_t n_panels = (w.n_out_ + panel - 1) / panel;
  w.n_out_padded_ = n_panels * panel;
  const int64_t panel_bytes = w.n_in_padded() * panel * StorageBytes(type);
  LK_ASSIGN_OR_RETURN(w.data_, Buffer::Allocate(static_cast<size_t>(n_panels * panel_bytes)));

  std::vector<std::vector<float>> scratch(pool.n_threads());
  pool.ParallelFor(n_panels, [&](int64_t p, int thread) {
    std::byte* out = w.data_.data() + p * panel_bytes;
    int64_t part_begin = 0;  // a panel may straddle two stacked matrices
    for (const TensorView& part : parts) {
      const int64_t part_end = part_begin + part.shape[0];
      const int64_t begin = std::max(p * panel, part_begin);
      const int64_t end = std::min((p + 1) * panel, part_end);
      if (begin < end) {
        PackPanel(part, begin - part_begin, end - begin, panel, begin - p * panel, scratch[thread],
                  type, out);
      }
      part_begin = part_end;
    }
  });
  return w;
}

void Linear(const PackedWeight& w, const float* x, int64_t ldx, int64_t n_rows, float* y,
            int64_t ldy, ThreadPool& pool) {
  thread_local std::vector<float> scratch;  // of the calling thread; grows to the largest step
  const Activations a = Prepare(w, x, ldx, n_rows, pool, scratch);
  const int64_t n_panels = w.n_out_padded() / w.kernels().panel_columns;
  // Whole groups of four panels: what one row's kernel takes at once.
  const int64_t wanted =
      (n_panels + kTasksPerThread * pool.n_threads() - 1) / (kTasksPerThread * pool.n_threads());
  const int64_t panels_per_task = (wanted + 3) / 4 * 4;
  const int64_t n_tasks = (n_panels + panels_per_task - 1) / panels_per_task;

  pool.ParallelFor(n_tasks, [&](int64_t task, int) {
    const int64_t first = task * panels_per_task;
    const int64_t count = std::min(panels_per_task, n_panels - first);
    // A few rows read B once, in whole panels; more rows want a block of B in L1.
    const int64_t block_k = n_rows <= 3 ? w.n_in_padded() : kBlockK;
    const int64_t panels_at_once = n_rows <= 3 ? count : 1;
    for (int64_t row = 0; row < n_rows; row += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, n_rows - row);
      for (int64_t k = 0; k < w.n_in_padded(); k += block_k) {
        const int64_t n_k = std::min(block_k, w.n_in_padded() - k);
        for (int64_t p = first; p < first + count; p += panels_at_once) {
          MultiplyBlock(w, a, row, rows, k, n_k, p, panels_at_once, y, ldy);
        }
      }
    }
  });
}

}  // namespace lowkey

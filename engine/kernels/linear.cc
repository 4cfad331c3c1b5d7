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

template <typename T>
void PackPanel(const TensorView& part, int64_t first_row, int64_t n_rows, int64_t panel,
               std::vector<float>& row, T* out) {
  const int64_t n_in = part.shape[1];
  row.resize(n_in);
  for (int64_t j = 0; j < n_rows; ++j) {
    LoadFloats(part, (first_row + j) * n_in, n_in, row.data());
    for (int64_t k = 0; k < n_in; ++k) {
      if constexpr (sizeof(T) == 4) {
        out[k * panel + j] = row[k];
      } else {
        out[k * panel + j] = ToBFloat16(row[k]).bits;
      }
    }
  }
}

}  // namespace

absl::StatusOr<PackedWeight> PackedWeight::Pack(absl::Span<const TensorView> parts,
                                                StorageType type, ThreadPool& pool) {
  LK_CHECK(!parts.empty());
  const int64_t panel = Kernels().panel_columns;
  PackedWeight w;
  w.type_ = type;
  w.n_in_ = parts[0].shape[1];
  for (const TensorView& p : parts) w.n_out_ += p.shape[0];
  const int64_t n_panels = (w.n_out_ + panel - 1) / panel;
  w.n_out_padded_ = n_panels * panel;
  const int64_t panel_bytes = w.n_in_ * panel * StorageBytes(type);
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
        const int64_t column = begin - p * panel;
        if (type == StorageType::kFloat32) {
          PackPanel(part, begin - part_begin, end - begin, panel, scratch[thread],
                    reinterpret_cast<float*>(out) + column);
        } else {
          PackPanel(part, begin - part_begin, end - begin, panel, scratch[thread],
                    reinterpret_cast<uint16_t*>(out) + column);
        }
      }
      part_begin = part_end;
    }
  });
  return w;
}

void Linear(const PackedWeight& w, const float* x, int64_t ldx, int64_t n_rows, float* y,
            int64_t ldy, ThreadPool& pool) {
  const KernelTable& kernels = Kernels();
  const int64_t panel = kernels.panel_columns;
  const int64_t n_panels = w.n_out_padded() / panel;
  const int64_t panel_elements = w.n_in() * panel;
  const int64_t element_bytes = StorageBytes(w.type());
  // Whole groups of four panels: what one row's kernel takes at once.
  const int64_t wanted =
      (n_panels + kTasksPerThread * pool.n_threads() - 1) / (kTasksPerThread * pool.n_threads());
  const int64_t panels_per_task = (wanted + 3) / 4 * 4;
  const int64_t n_tasks = (n_panels + panels_per_task - 1) / panels_per_task;

  pool.ParallelFor(n_tasks, [&](int64_t task, int) {
    const int64_t first = task * panels_per_task;
    const int64_t count = std::min(panels_per_task, n_panels - first);
    // A few rows read B once, in whole panels; more rows want a block of B in L1.
    const int64_t block_k = n_rows <= 3 ? w.n_in() : kBlockK;
    const int64_t panels_at_once = n_rows <= 3 ? count : 1;
    GemmArgs g;
    g.lda = ldx;
    g.b_row_stride = panel;
    g.b_panel_stride = panel_elements;
    g.ldc = ldy;
    for (int64_t row = 0; row < n_rows; row += kBlockRows) {
      g.n_rows = std::min(kBlockRows, n_rows - row);
      for (int64_t k = 0; k < w.n_in(); k += block_k) {
        g.k = std::min(block_k, w.n_in() - k);
        g.into = k == 0 ? GemmArgs::Into::kOverwrite : GemmArgs::Into::kAccumulate;
        g.a = x + row * ldx + k;
        for (int64_t p = first; p < first + count; p += panels_at_once) {
          g.b = w.data() + (p * panel_elements + k * panel) * element_bytes;
          g.n_cols = panels_at_once * panel;
          g.c = y + row * ldy + p * panel;
          kernels.Gemm(w.type(), g);
        }
      }
    }
  });
}

}  // namespace lowkey

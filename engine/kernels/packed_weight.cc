#include "engine/kernels/packed_weight.h"

#include <utility>

#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

int64_t PaddedInputs(const WeightForm& form, int64_t n_in) {
  if (form.codes.has_value()) return RoundUp(n_in, ShapeOf(*form.codes).block);
  return form.type == StorageType::kBFloat16 ? RoundUp(n_in, kPairSteps) : n_in;
}

int64_t PanelBytes(const WeightForm& form, int64_t n_in, int64_t panel) {
  const int64_t padded = PaddedInputs(form, n_in);
  if (!form.codes.has_value()) return padded * panel * StorageBytes(form.type);
  const CodeShape& shape = ShapeOf(*form.codes);
  return padded / shape.block * shape.bytes() * panel;
}

void PackPanel(absl::Span<const MatrixRow> rows, const WeightForm& form, int64_t panel,
               std::byte* out) {
  if (form.codes.has_value()) return PackCodes(rows, *form.codes, panel, out);
  const int64_t n_in = rows[0].matrix->shape[1];
  thread_local std::vector<float> numbers;
  numbers.resize(n_in);
  for (size_t column = 0; column < rows.size(); ++column) {
    LoadRow(*rows[column].matrix, rows[column].row, numbers.data());
    if (form.type == StorageType::kFloat32) {
      auto* to = reinterpret_cast<float*>(out) + column;
      for (int64_t k = 0; k < n_in; ++k) to[k * panel] = numbers[k];
    } else {
      auto* to = reinterpret_cast<uint16_t*>(out) + 2 * column;
      for (int64_t k = 0; k < n_in; ++k) {
        to[k / 2 * 2 * panel + k % 2] = ToBFloat16(numbers[k]).bits;
      }
    }
  }
}

}  // namespace

WeightForm FormOf(const TensorView& matrix, const WeightStorage& storage) {
  if (storage.keeps_codes) {
    if (const auto codes = CodeFormatOf(matrix); codes.has_value()) return {.codes = codes};
  }
  if (storage.type == StorageType::kInt8) return {.codes = CodeFormat::kInt8};
  return {.type = storage.type};
}

int64_t PackedBytes(const WeightForm& form, int64_t n_out, int64_t n_in, int64_t panel_columns) {
  return RoundUp(n_out, panel_columns) / panel_columns * PanelBytes(form, n_in, panel_columns);
}

absl::Status PackedWeight::AddPart(const WeightForm& form, absl::Span<const TensorView> tensors,
                                   ThreadPool& pool) {
  const int64_t panel = kernels_->panel_columns;
  PackedPart part{.form = form, .first_out = n_out_};
  for (const TensorView& tensor : tensors) part.n_out += tensor.shape[0];
  part.n_in_padded = PaddedInputs(form, n_in_);
  part.panel_bytes = PanelBytes(form, n_in_, panel);
  part.n_panels = RoundUp(part.n_out, panel) / panel;
  LK_ASSIGN_OR_RETURN(part.data,
                      Buffer::Allocate(static_cast<size_t>(part.n_panels * part.panel_bytes)));
  std::vector<MatrixRow> rows;  // stacked; a panel may straddle two matrices
  for (const TensorView& tensor : tensors) {
    for (int64_t i = 0; i < tensor.shape[0]; ++i) rows.push_back({&tensor, i});
  }
  pool.ParallelFor(part.n_panels, [&](int64_t p, int) {
    PackPanel(absl::MakeConstSpan(rows).subspan(p * panel, panel), form, panel,
              part.data.data() + p * part.panel_bytes);
  });
  n_out_ += part.n_out;
  n_out_padded_ = part.first_out + part.n_panels * panel;
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::StatusOr<PackedWeight> PackedWeight::Pack(absl::Span<const TensorView> tensors,
                                                const WeightStorage& storage, ThreadPool& pool,
                                                const KernelTable& kernels) {
  LK_CHECK(!tensors.empty() && storage.type != StorageType::kFloat8);
  PackedWeight w;
  w.kernels_ = &kernels;
  w.n_in_ = tensors[0].shape[1];
  while (!tensors.empty()) {
    const WeightForm form = FormOf(tensors[0], storage);
    size_t n = 1;
    while (n < tensors.size() && FormOf(tensors[n], storage) == form) ++n;
    LK_RETURN_IF_ERROR(w.AddPart(form, tensors.first(n), pool));
    tensors.remove_prefix(n);
  }
  return w;
}

int64_t PackedWeight::size_bytes() const {
  int64_t total = 0;
  for (const PackedPart& part : parts_) total += static_cast<int64_t>(part.data.size_bytes());
  return total;
}

}  // namespace lowkey

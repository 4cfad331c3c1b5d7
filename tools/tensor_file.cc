#include "tools/tensor_file.h"

#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/loader/safetensors.h"

namespace lowkey {
namespace {

absl::StatusOr<FloatTensor> ReadTensor(const Safetensors& file, const std::string& name,
                                       size_t n_dimensions) {
  const std::string where = absl::StrCat(file.file->name(), ": tensor ", name);
  if (const auto foreign = file.index.foreign_dtypes.find(name);
      foreign != file.index.foreign_dtypes.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": dtype ", foreign->second, ", expected F32, F16 or BF16"));
  }
  const auto it = file.index.tensors.find(name);
  if (it == file.index.tensors.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": missing, expected q, k and v, or x, wq, wk and wv"));
  }
  const TensorView& view = it->second;
  if (view.dtype == DType::kI32 || view.dtype == DType::kI64) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": dtype ", std::string(DTypeName(view.dtype)), ", expected F32, F16 or BF16"));
  }
  if (view.shape.size() != n_dimensions || view.size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": shape ", ShapeString(view.shape),
                                                   ", expected ", n_dimensions,
                                                   " dimensions, none of them 0"));
  }
  FloatTensor tensor{view.shape, std::vector<float>(static_cast<size_t>(view.size()))};
  LoadFloats(view, 0, view.size(), tensor.values.data());
  return tensor;
}

absl::Status CheckShape(const std::string& name, const FloatTensor& tensor,
                        const std::vector<int64_t>& expected) {
  if (tensor.shape == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, ": shape ", ShapeString(tensor.shape),
                                                 ", expected ", ShapeString(expected)));
}

// Returns x [n, hidden] times w [hidden, n_heads * head_dim] as [n_heads, n, head_dim].
FloatTensor Project(const FloatTensor& x, const FloatTensor& w, int64_t n_heads) {
  const int64_t n = x.shape[0], hidden = x.shape[1], width = w.shape[1];
  const int64_t head_dim = width / n_heads;
  FloatTensor out{{n_heads, n, head_dim}, std::vector<float>(static_cast<size_t>(n * width))};
  std::vector<double> row(static_cast<size_t>(width));
  for (int64_t t = 0; t < n; ++t) {
    std::fill(row.begin(), row.end(), 0.0);
    for (int64_t i = 0; i < hidden; ++i) {
      const double scale = x.values[static_cast<size_t>(t * hidden + i)];
      const float* weights = &w.values[static_cast<size_t>(i * width)];
      for (int64_t j = 0; j < width; ++j) row[static_cast<size_t>(j)] += scale * weights[j];
    }
    for (int64_t j = 0; j < width; ++j) {
      const int64_t at = ((j / head_dim) * n + t) * head_dim + j % head_dim;
      out.values[static_cast<size_t>(at)] = static_cast<float>(row[static_cast<size_t>(j)]);
    }
  }
  return out;
}

// Element i of a head's first half turns with element i of its second half.
void Rotate(FloatTensor& heads, double theta) {
  const int64_t n = heads.shape[1], head_dim = heads.shape[2], half = head_dim / 2;
  for (int64_t row = 0; row < heads.shape[0] * n; ++row) {
    float* values = &heads.values[static_cast<size_t>(row * head_dim)];
    for (int64_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double angle = static_cast<double>(row % n) * frequency;
      const double a = values[i], b = values[i + half];
      values[i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      values[i + half] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
  }
}

absl::Status CheckHeads(int64_t width, const ProjectOptions& options) {
  const int64_t n_heads = options.n_heads, n_kv_heads = options.n_kv_heads;
  if (n_heads < 1 || n_kv_heads < 1 || n_heads % n_kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--heads ", n_heads, ", --kv-heads ", n_kv_heads,
                     ": expected with x and weights, --heads a multiple of --kv-heads"));
  }
  if (width % n_heads != 0 || (width / n_heads) % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("wq: ", width, " columns, expected ", n_heads, " heads of an even head_dim"));
  }
  return absl::OkStatus();
}

absl::StatusOr<AttendTensors> ProjectTensors(const Safetensors& file,
                                             const ProjectOptions& options) {
  AttendTensors tensors;
  LK_ASSIGN_OR_RETURN(tensors.x, ReadTensor(file, "x", 2));
  const int64_t hidden = tensors.x.shape[1];
  FloatTensor wq{{hidden, hidden}, {}};
  if (options.use.Has(Projection::kQ)) {
    LK_ASSIGN_OR_RETURN(wq, ReadTensor(file, "wq", 2));
  }
  const int64_t width = wq.shape[1];
  LK_RETURN_IF_ERROR(CheckHeads(width, options));
  LK_RETURN_IF_ERROR(CheckShape("wq", wq, {hidden, width}));
  if (options.use.slices_input && width != hidden) return CheckShape("wq", wq, {hidden, hidden});
  const std::vector<int64_t> kv_shape = {hidden, width / options.n_heads * options.n_kv_heads};
  const auto project_kv = [&](const char* name) -> absl::StatusOr<FloatTensor> {
    LK_ASSIGN_OR_RETURN(const FloatTensor w, ReadTensor(file, name, 2));
    LK_RETURN_IF_ERROR(CheckShape(name, w, kv_shape));
    return Project(tensors.x, w, options.n_kv_heads);
  };
  if (!wq.values.empty()) tensors.q = Project(tensors.x, wq, options.n_heads);
  if (options.use.Has(Projection::kK)) {
    LK_ASSIGN_OR_RETURN(tensors.k, project_kv("wk"));
  }
  if (options.use.Has(Projection::kV)) {
    LK_ASSIGN_OR_RETURN(tensors.v, project_kv("wv"));
  }
  if (options.rope_theta > 0) {
    if (!tensors.q.values.empty()) Rotate(tensors.q, options.rope_theta);
    if (!tensors.k.values.empty()) Rotate(tensors.k, options.rope_theta);
  }
  return tensors;
}

// Returns the rows of the lower triangle of wa [l, l], one after the other.
absl::StatusOr<FloatTensor> ReadAlignment(const Safetensors& file) {
  LK_ASSIGN_OR_RETURN(const FloatTensor wa, ReadTensor(file, "wa", 2));
  LK_RETURN_IF_ERROR(CheckShape("wa", wa, {wa.shape[0], wa.shape[0]}));
  const auto l = static_cast<size_t>(wa.shape[0]);
  FloatTensor packed{{wa.shape[0] * (wa.shape[0] + 1) / 2}, {}};
  for (size_t i = 0; i < l; ++i) {
    packed.values.insert(packed.values.end(), wa.values.begin() + static_cast<int64_t>(i * l),
                         wa.values.begin() + static_cast<int64_t>(i * l + i + 1));
  }
  return packed;
}

absl::StatusOr<AttendTensors> ReadQkv(const Safetensors& file) {
  AttendTensors tensors;
  LK_ASSIGN_OR_RETURN(tensors.q, ReadTensor(file, "q", 3));
  LK_ASSIGN_OR_RETURN(tensors.k, ReadTensor(file, "k", 3));
  LK_ASSIGN_OR_RETURN(tensors.v, ReadTensor(file, "v", 3));
  LK_RETURN_IF_ERROR(
      CheckShape("k", tensors.k, {tensors.k.shape[0], tensors.q.shape[1], tensors.q.shape[2]}));
  LK_RETURN_IF_ERROR(CheckShape("v", tensors.v, tensors.k.shape));
  return tensors;
}

}  // namespace

absl::Status WriteFloats(const std::string& path, const std::string& name,
                         const std::vector<int64_t>& shape, absl::Span<const float> values) {
  const TensorView view{DType::kF32, shape, reinterpret_cast<const std::byte*>(values.data())};
  const std::pair<std::string, TensorView> tensors[] = {{name, view}};
  return WriteSafetensors(path, tensors);
}

absl::StatusOr<AttendTensors> ReadAttendTensors(const std::string& path,
                                                const ProjectOptions& options) {
  LK_ASSIGN_OR_RETURN(const Safetensors file, OpenSafetensors(path));
  const bool projects = !file.index.tensors.contains("q") && file.index.tensors.contains("x");
  LK_ASSIGN_OR_RETURN(AttendTensors tensors,
                      projects ? ProjectTensors(file, options) : ReadQkv(file));
  if (file.index.tensors.contains("tau")) {
    LK_ASSIGN_OR_RETURN(tensors.tau, ReadTensor(file, "tau", 1));
    if (tensors.q.shape.empty()) {
      return absl::InvalidArgumentError(path + ": tau, expected none where no map makes queries");
    }
    LK_RETURN_IF_ERROR(CheckShape("tau", tensors.tau, {tensors.q.shape[0]}));
  }
  if (file.index.tensors.contains("wa")) {
    LK_ASSIGN_OR_RETURN(tensors.wa, ReadAlignment(file));
  }
  return tensors;
}

}  // namespace lowkey

#ifndef LOWKEY_TOOLS_TENSOR_FILE_H_
#define LOWKEY_TOOLS_TENSOR_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/config/projections.h"

namespace lowkey {

// A tensor's values and shape.
struct FloatTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;  // row-major
};

// q [n_heads, n, head_dim], k and v [n_kv_heads, n, head_dim], after RoPE; x [n, hidden]; tau
// [n_heads]; wa holds the rows of the lower triangle one after the other. Tensors that the file
// lacks or that the mechanism does not read are empty.
struct AttendTensors {
  FloatTensor q, k, v, x, tau, wa;
};

// Options for turning x and weights into q, k and v.
struct ProjectOptions {
  ProjectionUse use = {};  // the maps that the mechanism has
  int64_t n_heads = 0, n_kv_heads = 0;
  double rope_theta = 10000.0;  // 0: no rotation
};

// Writes one F32 tensor of `shape` as safetensors. Errors: WriteSafetensors's.
absl::Status WriteFloats(const std::string& path, const std::string& name,
                         const std::vector<int64_t>& shape, absl::Span<const float> values);

// Reads q, k and v; or x [n, hidden], wq [hidden, n_heads * head_dim], wk and wv [hidden,
// n_kv_heads * head_dim], from which it computes them in double: q = x wq, rotated by position
// in halves as Llama does; and tau and wa [l, l] if the file has them. Mechanisms over slices of x
// leave out wk, wv or all. Errors: OpenSafetensors's; INVALID_ARGUMENT names a tensor that is
// missing, misshapen, or of a dtype other than F32, F16 and BF16.
absl::StatusOr<AttendTensors> ReadAttendTensors(const std::string& path,
                                                const ProjectOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_TENSOR_FILE_H_

#ifndef LOWKEY_ENGINE_LOADER_GROUPED_CHECKPOINT_H_
#define LOWKEY_ENGINE_LOADER_GROUPED_CHECKPOINT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/loader/tensor_table.h"

namespace lowkey {

// GroupedConfig says how the linear maps of a Hugging Face checkpoint are packed: config.json's
// quantization_config.
struct GroupedConfig {
  DType dtype = DType::kAwq4;         // or kGptq4, kGptq8
  std::optional<int64_t> group_size;  // 32, 64 or 128; nullopt: all inputs of a matrix
  bool needs_g_idx = false;           // GPTQ with desc_act
  int32_t zero_offset = 0;            // added to stored zero points
};

// Reads quantization_config; nullopt when config.json has none. INVALID_ARGUMENT for a field of
// another type or out of range; UNIMPLEMENTED, naming the field, for what we do not read: other
// methods than "awq" (version "gemm") and "gptq", other bits than 4 (gptq: or 8), other group
// sizes, settings that differ by module.
absl::StatusOr<std::optional<GroupedConfig>> ParseGroupedConfig(std::string_view config_json);

// Returns whether a linear map is packed: some of a quantized checkpoint's are not.
bool IsGrouped(const TensorTable& table, const std::string& linear);

// Takes a packed linear map of shape [n_out, n_in]: `<linear>.qweight`, `.qzeros`, `.scales` and
// GPTQ's `.g_idx`. The view's `grouped` says where codes, zero points and scales are, and LoadRow
// reads its rows. Errors name the tensor:
//   INVALID_ARGUMENT  a tensor missing, of another shape or dtype; sizes that words of eight or
//                     groups do not divide; a g_idx that is no group; a zero point of 16 (8 bits:
//                     256), which GPTQ's first version can store and implementations read
//                     differently
//   UNIMPLEMENTED     a g_idx that does not give every group its group_size inputs
absl::StatusOr<TensorView> TakeGrouped(TensorTable& table, const std::string& linear,
                                       const GroupedConfig& config,
                                       const std::vector<int64_t>& shape);

// Takes the `<linear>.bias` of a model without such a bias, if there is one: some packers write
// zeros. INVALID_ARGUMENT: another shape, or a number that is not 0.
absl::Status TakeZeroBias(TensorTable& table, const std::string& linear, int64_t n_out);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_GROUPED_CHECKPOINT_H_

#include "engine/loader/grouped_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/codes/grouped_codes.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr int64_t kMaxGroupSize = 1 << 20;

absl::Status Unsupported(const JsonFields& fields, const char* key, const std::string& known) {
  const json* value = fields.Find(key);
  return absl::UnimplementedError(absl::StrCat(fields.name(), ": ", key, ": ",
                                               value == nullptr ? "missing" : ShortText(*value),
                                               " is not supported, expected ", known));
}

absl::Status ReadGroups(const JsonFields& fields, GroupedConfig& config) {
  LK_ASSIGN_OR_RETURN(const int64_t bits, fields.RequiredInt("bits", {1, 32}));
  const bool is_gptq = config.dtype != DType::kAwq4;
  if (bits != 4 && !(is_gptq && bits == 8)) {
    return Unsupported(fields, "bits", is_gptq ? "4 or 8" : "4");
  }
  if (bits == 8) config.dtype = DType::kGptq8;
  LK_ASSIGN_OR_RETURN(const int64_t size, fields.RequiredInt("group_size", {-1, kMaxGroupSize}));
  if (size != -1 && size != 32 && size != 64 && size != 128) {
    return Unsupported(fields, "group_size", "-1, 32, 64 or 128");
  }
  if (size > 0) config.group_size = size;
  return absl::OkStatus();
}

absl::Status ReadAwq(const JsonFields& fields) {
  LK_ASSIGN_OR_RETURN(const auto version, fields.String("version"));
  if (absl::AsciiStrToLower(version.value_or("gemm")) != "gemm") {
    return Unsupported(fields, "version", "\"gemm\"");
  }
  LK_ASSIGN_OR_RETURN(const auto has_zeros, fields.Bool("zero_point"));
  if (!has_zeros.value_or(true)) return Unsupported(fields, "zero_point", "true");
  return absl::OkStatus();
}

// Symmetric weights store the zero point 8 like any other, so that `sym` changes nothing.
absl::Status ReadGptq(const JsonFields& fields, GroupedConfig& config) {
  LK_ASSIGN_OR_RETURN(const auto desc_act, fields.Bool("desc_act"));
  config.needs_g_idx = desc_act.value_or(false);
  LK_RETURN_IF_ERROR(fields.Bool("sym").status());
  LK_ASSIGN_OR_RETURN(const auto format, fields.String("checkpoint_format"));
  if (format.value_or("gptq") != "gptq" && format != "gptq_v2") {
    return Unsupported(fields, "checkpoint_format", "\"gptq\" or \"gptq_v2\"");
  }
  config.zero_offset = format == "gptq_v2" ? 0 : 1;
  LK_ASSIGN_OR_RETURN(const auto is_marlin, fields.Bool("is_marlin_format"));
  if (is_marlin.value_or(false)) return Unsupported(fields, "is_marlin_format", "false");
  LK_ASSIGN_OR_RETURN(const auto words, fields.String("pack_dtype"));
  if (words.value_or("int32") != "int32") return Unsupported(fields, "pack_dtype", "\"int32\"");
  const json* by_module = fields.Find("dynamic");
  if (by_module != nullptr && !by_module->empty()) {
    return Unsupported(fields, "dynamic", "the same settings in every module");
  }
  return absl::OkStatus();
}

// Checks a g_idx that was read and drops it where groups are of neighbors.
absl::Status CheckGroups(const std::string& where, GroupedCodes& matrix) {
  std::vector<int64_t> counts(matrix.n_groups());
  bool has_neighbors = true;
  for (int64_t i = 0; i < matrix.n_in; ++i) {
    const int32_t group = matrix.groups[i];
    if (group < 0 || group >= matrix.n_groups()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": ", group, " at input ", i,
                                                     ", expected 0..", matrix.n_groups() - 1));
    }
    ++counts[group];
    has_neighbors = has_neighbors && group == i / matrix.group_size;
  }
  for (int64_t g = 0; g < matrix.n_groups(); ++g) {
    const int64_t expected = std::min(matrix.group_size, matrix.n_in - g * matrix.group_size);
    if (counts[g] == expected) continue;
    return absl::UnimplementedError(absl::StrCat(where, ": ", counts[g], " inputs of group ", g,
                                                 " are not supported, expected ", expected));
  }
  if (has_neighbors) matrix.groups.clear();
  return absl::OkStatus();
}

absl::Status TakeGroups(TensorTable& table, const std::string& linear, const GroupedConfig& config,
                        GroupedCodes& matrix) {
  const std::string name = absl::StrCat(linear, ".g_idx");
  if (config.dtype == DType::kAwq4 || (!config.needs_g_idx && !table.Has(name))) {
    return absl::OkStatus();
  }
  LK_ASSIGN_OR_RETURN(const TensorView view, table.TakeInts(name, {matrix.n_in}));
  // A copy: another process may change the file after the check.
  matrix.groups.resize(static_cast<size_t>(matrix.n_in));
  std::memcpy(matrix.groups.data(), view.data, view.size_bytes());
  return CheckGroups(table.Where(name), matrix);
}

// Checks that no stored zero point is the largest code, which stands for one more.
absl::Status CheckZeros(const std::string& where, const TensorView& zeros,
                        const GroupedCodes& matrix) {
  const int64_t n_words = zeros.size(), in_row = zeros.shape[1];
  const int in_word = matrix.codes_in_word();
  for (int64_t i = 0; i < n_words; ++i) {
    uint32_t word;
    std::memcpy(&word, zeros.data + static_cast<size_t>(i) * sizeof(word), sizeof(word));
    for (int j = 0; j < in_word; ++j) {
      if ((word >> (j * matrix.bits()) & matrix.max_code()) != matrix.max_code()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": zero point ", matrix.max_code() + 1, " in group ", i / in_row, " of output ",
          i % in_row * in_word + j, ", expected 1..", matrix.max_code()));
    }
  }
  return absl::OkStatus();
}

// Returns whether all zero points are the middle of 8 bits.
bool IsSymmetric(const TensorView& zeros, const GroupedCodes& matrix) {
  if (matrix.dtype != DType::kGptq8) return false;
  const auto stored = static_cast<std::byte>(GroupedCodes::kMiddleOf8Bits - matrix.zero_offset);
  return std::all_of(zeros.data, zeros.data + zeros.size_bytes(),
                     [&](std::byte zero) { return zero == stored; });
}

absl::Status CheckSizes(const std::string& where, const GroupedConfig& config,
                        const std::vector<int64_t>& shape) {
  const auto expected = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": a map of shape ", ShapeString(shape), ", expected ", what));
  };
  if (shape[0] % 8 != 0 || shape[1] % 8 != 0) return expected("multiples of 8");
  if (config.dtype == DType::kAwq4 && shape[1] % config.group_size.value_or(shape[1]) != 0) {
    return expected(absl::StrCat("inputs in groups of ", *config.group_size));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<GroupedConfig>> ParseGroupedConfig(std::string_view config_json) {
  LK_ASSIGN_OR_RETURN(const json object, ParseJsonObject(config_json, "config.json"));
  const JsonFields all(object, "config.json");
  LK_ASSIGN_OR_RETURN(const auto fields, all.Object("quantization_config"));
  if (!fields.has_value()) return std::nullopt;
  LK_ASSIGN_OR_RETURN(const auto method, fields->String("quant_method"));
  const bool is_awq = method == "awq";
  if (!is_awq && method != "gptq") {
    return Unsupported(*fields, "quant_method", "\"awq\" or \"gptq\"");
  }
  GroupedConfig config;
  config.dtype = is_awq ? DType::kAwq4 : DType::kGptq4;
  LK_RETURN_IF_ERROR(ReadGroups(*fields, config));
  LK_RETURN_IF_ERROR(is_awq ? ReadAwq(*fields) : ReadGptq(*fields, config));
  return config;
}

bool IsGrouped(const TensorTable& table, const std::string& linear) {
  return table.Has(absl::StrCat(linear, ".qweight"));
}

absl::StatusOr<TensorView> TakeGrouped(TensorTable& table, const std::string& linear,
                                       const GroupedConfig& config,
                                       const std::vector<int64_t>& shape) {
  const std::string codes_name = absl::StrCat(linear, ".qweight");
  LK_RETURN_IF_ERROR(CheckSizes(table.Where(codes_name), config, shape));
  auto matrix = std::make_shared<GroupedCodes>();
  matrix->dtype = config.dtype;
  matrix->n_out = shape[0];
  matrix->n_in = shape[1];
  matrix->group_size = config.group_size.value_or(matrix->n_in);
  matrix->zero_offset = config.zero_offset;
  const bool is_awq = config.dtype == DType::kAwq4;
  const int in_word = matrix->codes_in_word();
  const std::vector<int64_t> codes_shape = {is_awq ? matrix->n_in : matrix->n_in / in_word,
                                            is_awq ? matrix->n_out / in_word : matrix->n_out};
  LK_ASSIGN_OR_RETURN(const TensorView codes, table.TakeInts(codes_name, codes_shape));
  const std::string zeros_name = absl::StrCat(linear, ".qzeros");
  LK_ASSIGN_OR_RETURN(const TensorView zeros,
                      table.TakeInts(zeros_name, {matrix->n_groups(), matrix->n_out / in_word}));
  if (config.zero_offset > 0)
    LK_RETURN_IF_ERROR(CheckZeros(table.Where(zeros_name), zeros, *matrix));
  LK_ASSIGN_OR_RETURN(const TensorView scales, table.Take(absl::StrCat(linear, ".scales"),
                                                          {matrix->n_groups(), matrix->n_out}));
  LK_RETURN_IF_ERROR(TakeGroups(table, linear, config, *matrix));
  matrix->is_symmetric = IsSymmetric(zeros, *matrix);
  matrix->codes = codes.data;
  matrix->zeros = zeros.data;
  matrix->scales = scales.data;
  matrix->scale_dtype = scales.dtype;
  TensorView view{config.dtype, shape, codes.data};
  view.grouped = std::move(matrix);
  return view;
}

absl::Status TakeZeroBias(TensorTable& table, const std::string& linear, int64_t n_out) {
  const std::string name = absl::StrCat(linear, ".bias");
  if (!table.Has(name)) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(const TensorView view, table.Take(name, {n_out}));
  std::vector<float> bias(static_cast<size_t>(n_out));
  LoadFloats(view, 0, n_out, bias.data());
  const auto other = std::find_if(bias.begin(), bias.end(), [](float x) { return x != 0; });
  if (other == bias.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(table.Where(name), ": ", *other, " at output ",
                                                 other - bias.begin(),
                                                 ", expected zeros: the model has no such bias"));
}

}  // namespace lowkey

#ifndef LOWKEY_TESTS_ENGINE_KERNELS_REF_REF_H_
#define LOWKEY_TESTS_ENGINE_KERNELS_REF_REF_H_

#include <cstdint>
#include <vector>

#include "engine/kernels/kernels.h"

namespace lowkey::ref {

// The definitions of the kernels: one plain loop each, sums in double, results unrounded. Every
// KernelTable is tested against this oracle; no request runs it.

// Returns element `index` of fp32, bf16 or int8 storage.
double Element(const void* data, StorageType type, int64_t index);

// Returns the result of KernelTable::Gemm, contiguous [n_rows, n_cols]. Reads args.c when
// accumulating, writes nothing.
std::vector<double> Gemm(StorageType b_type, int64_t panel_columns, const GemmArgs& args);

// Returns the result of KernelTable::DotRows, contiguous [n_rows, n_dots]. Writes nothing.
std::vector<double> DotRows(StorageType b_type, const DotRowsArgs& args);

// Returns x [n_rows, n_in] times the transpose of a row-major weight [n_out, n_in]: [n_rows,
// n_out].
std::vector<double> Linear(const std::vector<float>& weight, const std::vector<float>& x,
                           int64_t n_in);

std::vector<double> RmsNorm(const std::vector<float>& x, const std::vector<float>& w, double eps);
std::vector<double> SiluMul(const std::vector<float>& gate, const std::vector<float>& up);

// Returns x [n_heads, head_dim] with pairs (j, j + head_dim / 2) turned by the angles of cos and
// sin [head_dim / 2].
std::vector<double> Rope(const std::vector<float>& x, const std::vector<float>& cos,
                         const std::vector<float>& sin);

// Returns exp(s_i) / sum_j exp(s_j); -inf gives 0. At least one score is finite.
std::vector<double> Softmax(const std::vector<float>& scores);

// Returns 1 + s + s^2 / 2 of the first n_visible scores, 0 for the others.
std::vector<double> TaylorWeights(const std::vector<float>& scores, int64_t n_visible);

// Returns the result of KernelTable::turned_products, contiguous [n_rows, n_out]. Writes nothing.
std::vector<double> TurnedProducts(const TurnedProductsArgs& args);

// Returns the bfloat16 nearest to x, the even one of two; values half a step past the largest and
// beyond give infinity; NaN gives a quiet NaN.
uint16_t ToBf16(float x);

}  // namespace lowkey::ref

#endif  // LOWKEY_TESTS_ENGINE_KERNELS_REF_REF_H_

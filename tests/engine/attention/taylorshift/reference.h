#ifndef LOWKEY_TESTS_ENGINE_ATTENTION_TAYLORSHIFT_REFERENCE_H_
#define LOWKEY_TESTS_ENGINE_ATTENTION_TAYLORSHIFT_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "tests/engine/attention/attention_testing.h"

namespace lowkey {

// The tensors and settings that a model brings for TaylorShift.
struct TaylorModel {
  TaylorVariant variant = TaylorVariant::kNormalized;
  // [n_layers, n_heads] each, read where the variant is normalized; an empty near is far.
  std::vector<float> far = {}, near = {};
  int64_t window_tokens = 0;
};

// TaylorShift in double over keys and values as the cache holds them, one layer: [n_tokens, n_heads
// * head_dim].
//
// c_ij = q_i . k_j, of unit vectors where the variant is normalized. The score of token j for row i
// is tau[h] c_ij or, plain, c_ij / sqrt(key_dim). Without a window every visible token weighs 1 + s
// + s^2 / 2, and normalized outputs are scaled by sqrt(visible tokens / head_dim). With a window of
// W tokens, token j is near row i if floor(j / 64) >= floor(i / 64) - W / 64; near tokens weigh
// exp(u), where u has tau_window in tau's place, and outputs are not scaled.
std::vector<double> ReferenceTaylorShift(const AttentionRows& rows, int64_t layer,
                                         const TaylorModel& model);

// The same sums, with all far tokens in one state of F x (head_dim + 1) numbers per query head, F =
// 1 + e + e (e + 1) / 2 features of keys of e numbers: 1, x_j, and x_i x_j for i <= j, squares over
// sqrt(2).
std::vector<double> ReferenceTaylorShiftByState(const AttentionRows& rows, int64_t layer,
                                                const TaylorModel& model);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_ATTENTION_TAYLORSHIFT_REFERENCE_H_

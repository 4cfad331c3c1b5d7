#ifndef LOWKEY_TESTS_FUZZ_BUNDLE_SEED_H_
#define LOWKEY_TESTS_FUZZ_BUNDLE_SEED_H_

#include "bench/random_bundle.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {

// Every kind of mechanism that a lowkey.json can hold.
inline RandomBundleOptions SeedBundle() {
  return {TinyConfig(),
          {{.mechanism = Mechanism::kAtp, .lora_rank = 2},
           {.mechanism = Mechanism::kOptimised, .n_heads = 4, .n_kv_heads = 2},
           {.mechanism = Mechanism::kEfficient, .n_heads = 1},
           {.mechanism = Mechanism::kSuper, .over = Mechanism::kStandard, .alignment_tokens = 20},
           {.mechanism = Mechanism::kLasso,
            .lasso = {LassoForm::kVanilla, 0.25f, 2.0f, 3, 5.0f, 7, 11}},
           {.mechanism = Mechanism::kTaylorShift,
            .score_dim = 4,
            .window_tokens = 64,
            .variant = TaylorVariant::kPlain}},
          1};
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_FUZZ_BUNDLE_SEED_H_

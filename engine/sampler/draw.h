#ifndef LOWKEY_ENGINE_SAMPLER_DRAW_H_
#define LOWKEY_ENGINE_SAMPLER_DRAW_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/sampler/logits.h"

namespace lowkey {

// The cuts to a distribution before a draw, in this order.
struct DrawFilters {
  int32_t top_k = 0;   // 0: off
  float top_p = 1.0f;  // (0, 1]; 1: off
  float min_p = 0.0f;  // [0, 1); 0: off
};

// Scratch memory of DrawToken, kept between calls.
struct DrawScratch {
  std::vector<float> weights;
  std::vector<Candidate> candidates, ranked;
};

// A draw: the token at `uniform` (in [0, 1)) of softmax(logits / temperature) after the filters,
// tokens in order of id. temperature > 0; max as MaxLogit gives it; filters within their bounds.
struct DrawInput {
  absl::Span<const float> logits;
  float max = 0.0f;
  float temperature = 1.0f;
  double uniform = 0.0;
};
int32_t DrawToken(const DrawInput& input, const DrawFilters& filters, DrawScratch& scratch);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_SAMPLER_DRAW_H_

#ifndef LOWKEY_ENGINE_ATTENTION_ATP_TOP_TOKENS_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_TOP_TOKENS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace lowkey {

// Finds the largest of many weights without sorting them: maxima of groups of 16 give a threshold
// that few weights reach. O(n), 32 n at worst (many equal ones). Keeps its memory between calls;
// one per thread.
class TopTokens {
 public:
  // Returns the indices of the n_wanted largest weights (none negative), ascending, or of all that
  // reach `least` where they are fewer; the lowest indices among equal weights. NaN counts as
  // largest. Valid until the next call.
  absl::Span<const int32_t> Select(absl::Span<const float> weights, int64_t n_wanted,
                                   float least = 0);

 private:
  // Returns a weight that at least n_wanted maxima of groups reach, and few more if they differ.
  float Threshold(absl::Span<const float> weights, int64_t n_wanted);

  std::vector<float> maxima_;
  std::vector<int32_t> keys_;
  std::vector<int32_t> chosen_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_TOP_TOKENS_H_

#ifndef LOWKEY_ENGINE_CONFIG_PROJECTIONS_H_
#define LOWKEY_ENGINE_CONFIG_PROJECTIONS_H_

#include <array>
#include <cstddef>

#include "engine/config/attention_options.h"

namespace lowkey {

// The linear maps around attention, in the order of their names in a bundle.
enum class Projection { kQ, kK, kV, kO };
inline constexpr int kNumProjections = 4;
inline constexpr std::array<const char*, kNumProjections> kProjectionNames = {"wq", "wk", "wv",
                                                                              "wo"};

// Which of the four maps a mechanism has (the table of docs/bundles.md).
struct ProjectionUse {
  std::array<bool, kNumProjections> has = {true, true, true, true};
  // Head h reads columns h * head_dim .. of the layer's input, so that n_heads * head_dim is
  // hidden_dim.
  bool slices_input = false;

  constexpr bool Has(Projection p) const { return has[static_cast<size_t>(p)]; }
  constexpr int Count() const { return has[0] + has[1] + has[2] + has[3]; }
};

// The use of `mechanism`. Super has the maps of the mechanism `over` which it aligns values.
constexpr ProjectionUse ProjectionsOf(Mechanism mechanism, Mechanism over = Mechanism::kEfficient) {
  switch (mechanism == Mechanism::kSuper ? over : mechanism) {
    case Mechanism::kOptimised:
      return {{true, true, false, true}, true};
    case Mechanism::kEfficient:
      return {{true, false, false, true}, true};
    case Mechanism::kLasso:
      return {{false, false, false, true}, true};
    default:
      return {};
  }
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_PROJECTIONS_H_

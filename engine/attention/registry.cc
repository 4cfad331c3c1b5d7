#include "engine/attention/atp.h"
#include "engine/attention/attention.h"
#include "engine/attention/standard.h"
#include "engine/base/status_macros.h"

namespace lowkey {

absl::Span<const Mechanism> AllMechanisms() {
  static constexpr Mechanism kAll[] = {Mechanism::kStandard, Mechanism::kAtp};
  return kAll;
}

std::unique_ptr<AttentionMechanism> MakeMechanism(Mechanism id, const AttentionContext& context) {
  switch (id) {
    case Mechanism::kStandard:
      return std::make_unique<StandardAttention>(context);
    case Mechanism::kAtp:
      return std::make_unique<AtpAttention>(context);
  }
  LK_CHECK(false);
}

}  // namespace lowkey

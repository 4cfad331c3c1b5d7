#include "engine/attention/atp/host.h"
#include "engine/attention/attention.h"
#include "engine/attention/lasso/lasso.h"
#include "engine/attention/place/device_mechanisms.h"
#include "engine/attention/slices/host.h"
#include "engine/attention/standard/host.h"
#include "engine/attention/taylorshift/host.h"
#include "engine/base/status_macros.h"

namespace lowkey {

std::unique_ptr<AttentionMechanism> MakeMechanism(Mechanism id, const AttentionContext& context) {
  if (context.place != nullptr) return MakeDeviceMechanism(id, context);
  if (id == Mechanism::kStandard) return std::make_unique<StandardAttention>(context);
  if (id == Mechanism::kAtp) return std::make_unique<AtpAttention>(context);
  if (id == Mechanism::kTaylorShift) return std::make_unique<TaylorShiftAttention>(context);
  if (context.weights == nullptr) return nullptr;
  const auto sources = SliceSourcesOf(id, context.weights->over);
  if (sources.has_value()) return std::make_unique<SliceAttention>(id, *sources, context);
  LK_CHECK(id == Mechanism::kLasso);
  return std::make_unique<LassoAttention>(context);
}

}  // namespace lowkey

#include "engine/attention/atp/atp.h"
#include "engine/attention/attention.h"
#include "engine/attention/device/device_mechanisms.h"
#include "engine/attention/lasso.h"
#include "engine/attention/slice_attention.h"
#include "engine/attention/standard.h"
#include "engine/attention/taylorshift/taylorshift.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using Keys = SliceSources::Keys;
using Values = SliceSources::Values;
using Alignment = SliceSources::Alignment;

// Where `super` over another mechanism finds keys and values (attention.md "The mechanisms").
SliceSources Aligned(Mechanism over) {
  if (over == Mechanism::kStandard) {
    return {Keys::kProjected, Values::kProjected, Alignment::kTriangular};
  }
  return {over == Mechanism::kOptimised ? Keys::kProjected : Keys::kSlices, Values::kSlices,
          Alignment::kTriangular};
}

}  // namespace

std::unique_ptr<AttentionMechanism> MakeMechanism(Mechanism id, const AttentionContext& context) {
  if (context.place != nullptr) return MakeDeviceMechanism(id, context);
  if (id == Mechanism::kStandard) return std::make_unique<StandardAttention>(context);
  if (id == Mechanism::kAtp) return std::make_unique<AtpAttention>(context);
  if (id == Mechanism::kTaylorShift) return std::make_unique<TaylorShiftAttention>(context);
  if (context.weights == nullptr) return nullptr;
  switch (id) {
    case Mechanism::kOptimised:
      return std::make_unique<SliceAttention>(
          id, SliceSources{Keys::kProjected, Values::kSlices, Alignment::kNone}, context);
    case Mechanism::kEfficient:
      return std::make_unique<SliceAttention>(
          id, SliceSources{Keys::kSlices, Values::kSlices, Alignment::kNone}, context);
    case Mechanism::kSuper:
      return std::make_unique<SliceAttention>(id, Aligned(context.weights->over), context);
    case Mechanism::kLasso:
      return std::make_unique<LassoAttention>(context);
    default:
      LK_CHECK(false);
  }
}

}  // namespace lowkey

#include "engine/attention/device/device_mechanisms.h"

#include <utility>

#include "engine/attention/device/atp.h"
#include "engine/attention/device/host_attention.h"
#include "engine/attention/device/routed_attention.h"
#include "engine/attention/device/slice_attention.h"
#include "engine/attention/device/standard.h"
#include "engine/attention/device/taylorshift.h"

namespace lowkey {
namespace {

std::unique_ptr<AttentionMechanism> OnTheHost(Mechanism id, const AttentionContext& context) {
  AttentionContext host = context;
  host.place = nullptr;
  host.cache = context.place->host_cache;
  auto mechanism = MakeMechanism(id, host);
  if (mechanism == nullptr) return nullptr;
  return std::make_unique<HostAttention>(std::move(mechanism), context);
}

}  // namespace

std::unique_ptr<AttentionMechanism> MakeDeviceMechanism(Mechanism id,
                                                        const AttentionContext& context) {
  if (id == Mechanism::kTaylorShift) return std::make_unique<DeviceTaylorShift>(context);
  if (id == Mechanism::kStandard && DeviceStandardAttention::Serves(context.geometry)) {
    return std::make_unique<DeviceStandardAttention>(context);
  }
  if (id == Mechanism::kAtp && DeviceAtp::Fits(context.geometry)) {
    return std::make_unique<RoutedAttention>(std::make_unique<DeviceAtp>(context),
                                             DeviceAtp::Serves, OnTheHost(id, context));
  }
  if (context.weights != nullptr) {
    const auto sources = SliceSourcesOf(id, context.weights->over);
    if (sources.has_value()) return std::make_unique<DeviceSliceAttention>(id, *sources, context);
  }
  return OnTheHost(id, context);
}

}  // namespace lowkey

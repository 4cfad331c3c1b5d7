#include "engine/attention/place/device_mechanisms.h"

#include <utility>

#include "engine/attention/atp/device.h"
#include "engine/attention/place/host_attention.h"
#include "engine/attention/place/routed_attention.h"
#include "engine/attention/slices/device.h"
#include "engine/attention/standard/device.h"
#include "engine/attention/taylorshift/device.h"

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

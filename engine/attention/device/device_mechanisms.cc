#include "engine/attention/device/device_mechanisms.h"

#include <utility>

#include "engine/attention/device/host_attention.h"
#include "engine/attention/device/taylorshift.h"

namespace lowkey {

std::unique_ptr<AttentionMechanism> MakeDeviceMechanism(Mechanism id,
                                                        const AttentionContext& context) {
  if (id == Mechanism::kTaylorShift) return std::make_unique<DeviceTaylorShift>(context);
  AttentionContext host = context;
  host.place = nullptr;
  host.cache = context.place->host_cache;
  auto mechanism = MakeMechanism(id, host);
  if (mechanism == nullptr) return nullptr;
  return std::make_unique<HostAttention>(std::move(mechanism), context);
}

}  // namespace lowkey

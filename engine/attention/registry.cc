#include <algorithm>
#include <iterator>
#include <type_traits>

#include "engine/attention/atp/device.h"
#include "engine/attention/atp/host.h"
#include "engine/attention/attention.h"
#include "engine/attention/lasso/host.h"
#include "engine/attention/place/host_attention.h"
#include "engine/attention/place/routed_attention.h"
#include "engine/attention/slices/device.h"
#include "engine/attention/slices/host.h"
#include "engine/attention/standard/coded_prefix.h"
#include "engine/attention/standard/device.h"
#include "engine/attention/standard/host.h"
#include "engine/attention/taylorshift/device.h"
#include "engine/attention/taylorshift/host.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using Maker = std::unique_ptr<AttentionMechanism> (*)(Mechanism id, const AttentionContext&);

template <typename T>
std::unique_ptr<AttentionMechanism> Make(Mechanism id, const AttentionContext& context) {
  if constexpr (std::is_constructible_v<T, Mechanism, const AttentionContext&>) {
    return std::make_unique<T>(id, context);
  } else {
    return std::make_unique<T>(context);
  }
}

// How a mechanism is made for each place.
struct Room {
  Mechanism id;
  bool needs_weights;
  Maker host;
  Maker device = nullptr;  // nullptr: there are no kernels, and the host attends for the device
  // Which models and options the kernels are made for, where that is not all: the host attends to
  // the others.
  bool (*fits)(const AttentionGeometry&) = nullptr;
  bool (*serves)(const AttentionOptions&) = nullptr;
};

bool StoresKeys(const AttentionOptions& options) {
  return options.efficient.key_storage == KeyStorage::kRotated;
}

// Efficient over both of its caches.
template <typename Stored, typename Derived>
std::unique_ptr<AttentionMechanism> MakeEfficient(Mechanism id, const AttentionContext& context) {
  return std::make_unique<RoutedAttention>(Make<Stored>(id, context), StoresKeys,
                                           Make<Derived>(id, context));
}

// Standard attention, which codes prefixes where the model was calibrated.
std::unique_ptr<AttentionMechanism> MakeStandard(Mechanism id, const AttentionContext& context) {
  return context.codes != nullptr ? Make<CodedStandard>(id, context)
                                  : Make<HostStandard>(id, context);
}

constexpr Room kRooms[] = {
    {Mechanism::kStandard, false, MakeStandard, Make<DeviceStandard>, DeviceStandard::Fits},
    {Mechanism::kAtp, false, Make<HostAtp>, Make<DeviceAtp>, DeviceAtp::Fits, DeviceAtp::Serves},
    {Mechanism::kTaylorShift, false, Make<HostTaylorShift>, Make<DeviceTaylorShift>},
    {Mechanism::kOptimised, true, Make<HostStandard>, Make<DeviceStandard>, DeviceStandard::Fits},
    {Mechanism::kEfficient, true, MakeEfficient<HostStandard, HostSlices>,
     MakeEfficient<DeviceStandard, DeviceSlices>, DeviceStandard::Fits},
    {Mechanism::kSuper, true, Make<HostSlices>, Make<DeviceSlices>},
    {Mechanism::kLasso, true, Make<HostLasso>},
};

std::unique_ptr<AttentionMechanism> MakeOnHost(const Room& room, const AttentionContext& context) {
  AttentionContext host = context;
  host.place = nullptr;
  // Prefixes are coded where the host holds the cache.
  if (room.id == Mechanism::kStandard) host.codes = nullptr;
  host.cache = context.place->host_cache;
  return std::make_unique<HostAttention>(room.host(room.id, host), context);
}

}  // namespace

std::unique_ptr<AttentionMechanism> MakeMechanism(Mechanism id, const AttentionContext& context) {
  const Room* room =
      std::find_if(std::begin(kRooms), std::end(kRooms), [&](const Room& r) { return r.id == id; });
  LK_CHECK(room != std::end(kRooms));
  if (room->needs_weights && context.weights == nullptr) return nullptr;
  if (context.place == nullptr) return room->host(id, context);
  if (room->device == nullptr || (room->fits != nullptr && !room->fits(context.geometry))) {
    return MakeOnHost(*room, context);
  }
  auto device = room->device(id, context);
  if (room->serves == nullptr) return device;
  return std::make_unique<RoutedAttention>(std::move(device), room->serves,
                                           MakeOnHost(*room, context));
}

}  // namespace lowkey

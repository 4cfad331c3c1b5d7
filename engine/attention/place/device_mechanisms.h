#ifndef LOWKEY_ENGINE_ATTENTION_PLACE_DEVICE_MECHANISMS_H_
#define LOWKEY_ENGINE_ATTENTION_PLACE_DEVICE_MECHANISMS_H_

#include <memory>

#include "engine/attention/attention.h"

namespace lowkey {

// A mechanism that attends on context.place's device: with kernels of its own where there are some,
// else on the host. nullptr as MakeMechanism.
std::unique_ptr<AttentionMechanism> MakeDeviceMechanism(Mechanism id,
                                                        const AttentionContext& context);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PLACE_DEVICE_MECHANISMS_H_

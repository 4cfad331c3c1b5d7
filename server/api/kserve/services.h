#ifndef LOWKEY_SERVER_API_KSERVE_SERVICES_H_
#define LOWKEY_SERVER_API_KSERVE_SERVICES_H_

#include <functional>

#include "server/api/kserve/infer.h"
#include "server/rpc/registry.h"

namespace lowkey {

// Adds the methods of inference.GRPCInferenceService. `is_ready` tells whether new requests are
// admitted; thread-safe, returns at once. The context must outlive the registry's calls.
void AddInferenceService(RpcRegistry& registry, const InferContext& context,
                         std::function<bool()> is_ready);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_SERVICES_H_

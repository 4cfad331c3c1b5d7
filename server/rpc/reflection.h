#ifndef LOWKEY_SERVER_RPC_REFLECTION_H_
#define LOWKEY_SERVER_RPC_REFLECTION_H_

#include "server/rpc/registry.h"

namespace lowkey {

// Adds grpc.reflection.v1 and v1alpha, which describe the registry's services, themselves included,
// from the descriptors that are compiled in. The registry must outlive their calls.
void AddReflection(RpcRegistry& registry);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_REFLECTION_H_

#ifndef LOWKEY_SERVER_API_LOWKEY_SERVICES_H_
#define LOWKEY_SERVER_API_LOWKEY_SERVICES_H_

#include <functional>

#include "server/api/calls/calls.h"
#include "server/rpc/registry.h"

namespace lowkey {

// Add the methods of lowkey.v1's services. The context must outlive the registry's calls.
void AddGenerationService(RpcRegistry& registry, const GenerationContext& context);
void AddModelsService(RpcRegistry& registry, const GenerationContext& context);

struct AdminOptions {
  std::function<void()> begin_drain;  // thread-safe, returns at once; may be called more than once
  bool may_anyone_drain = false;      // not only callers on this machine
};
void AddAdminService(RpcRegistry& registry, const GenerationContext& context, AdminOptions options);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_LOWKEY_SERVICES_H_

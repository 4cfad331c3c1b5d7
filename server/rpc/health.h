#ifndef LOWKEY_SERVER_RPC_HEALTH_H_
#define LOWKEY_SERVER_RPC_HEALTH_H_

#include <memory>
#include <string>
#include <vector>

#include "server/rpc/registry.h"

namespace lowkey {

// grpc.health.v1: Check, Watch and List. All services are healthy or none is.
class RpcHealth {
 public:
  // Adds the service's methods to the registry. SERVING from the start; names are those of the
  // registry's services at the time of a call, and "". The object must outlive the registry's
  // calls.
  explicit RpcHealth(RpcRegistry& registry);
  ~RpcHealth();

  // Tells every Watch. Thread-safe.
  void SetServing(bool is_serving);
  // Ends every Watch with UNAVAILABLE, and those that come later. Thread-safe.
  void Shutdown();

 private:
  struct State;

  const std::shared_ptr<State> state_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_HEALTH_H_

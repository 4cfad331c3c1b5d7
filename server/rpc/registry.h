#ifndef LOWKEY_SERVER_RPC_REGISTRY_H_
#define LOWKEY_SERVER_RPC_REGISTRY_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/request/limits.h"
#include "server/rpc/stream.h"

namespace google::protobuf {
class Descriptor;
class MethodDescriptor;
class ServiceDescriptor;
}  // namespace google::protobuf

namespace lowkey {

// Makes the handler of one call.
using MakeRpcHandler = std::function<std::unique_ptr<RpcHandler>(RpcStream& stream)>;

// Messages up to this length take nothing of the memory for bodies: the bounds on streams and on
// waiting requests are enough for them. A method that asks for no credentials takes no longer ones.
inline constexpr size_t kSmallMessageBytes = 512;

struct RpcMethod {
  const google::protobuf::MethodDescriptor* descriptor = nullptr;
  MakeRpcHandler make_handler;
  size_t max_message_bytes = kMaxMessageBytes;
};

// The services of a server and their methods. Filled before the server starts, then read by all
// loops.
class RpcRegistry {
 public:
  // Adds a method of a service. Each method of each service must be added exactly once.
  void Add(const google::protobuf::MethodDescriptor& method, MakeRpcHandler make_handler,
           size_t max_message_bytes = kMaxMessageBytes);

  // FAILED_PRECONDITION naming a method of an added service that has no handler.
  absl::Status CheckComplete() const;

  // `path`: "/lowkey.v1.Generation/Score". Null for an unknown one.
  const RpcMethod* Find(std::string_view path) const;

  // The full names of the services that have methods here, sorted.
  std::vector<std::string> ServiceNames() const;

 private:
  std::map<std::string, RpcMethod, std::less<>> methods_;  // by path
  std::map<std::string, const google::protobuf::ServiceDescriptor*, std::less<>> services_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_REGISTRY_H_

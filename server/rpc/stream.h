#ifndef LOWKEY_SERVER_RPC_STREAM_H_
#define LOWKEY_SERVER_RPC_STREAM_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/http/byte_budget.h"
#include "server/net/event_loop.h"
#include "server/net/peer.h"
#include "server/request/call_id.h"
#include "server/request/tenant.h"
#include "server/request/trace_context.h"

namespace lowkey {

// RpcContext holds what is known of a call before its first message.
struct RpcContext {
  std::string method;  // "/lowkey.v1.Generation/Score"
  Peer peer;
  Tenant tenant;
  absl::Time deadline = absl::InfiniteFuture();
  CallId id = {};
  std::optional<TraceContext> trace = {};  // the caller's, where the call has one
  // Belongs to the call's loop: true once the call has its own line in the log. Null: nobody asks.
  std::shared_ptr<bool> is_logged = nullptr;
};

// A request that found no room should be tried again after this time.
inline constexpr absl::Duration kRetryAfterOthers = absl::Seconds(1);

// A message whose elements were counted (CheckWire), and the memory that is counted for it.
struct RpcMessage {
  std::string bytes;
  std::shared_ptr<const HeldBytes> held = nullptr;  // kept for as long as the bytes are
};

// The server's end of one gRPC call. It belongs to its connection's loop.
class RpcStream {
 public:
  virtual const RpcContext& context() const = 0;
  virtual EventLoop& loop() const = 0;

  // Returns the value of the client's metadata of this name, in lower case; nullopt unless there is
  // exactly one. Only while the call's handler is made.
  virtual std::optional<std::string_view> Metadata(std::string_view /*name*/) const {
    return std::nullopt;
  }

  // Sends a serialized message. After Finish nothing is sent any more. Neither method throws: a
  // lack of memory ends the call.
  virtual void Write(std::string_view message) = 0;
  // Ends the call. ToStatusFields says what of the status is sent.
  virtual void Finish(const absl::Status& status) = 0;
  // Bytes that were written and have not been handed to the transport.
  virtual size_t unsent_bytes() const = 0;

 protected:
  ~RpcStream() = default;
};

// Handles one call, on its loop's thread. A method that throws std::bad_alloc ends the call. The
// handler's destruction says that the call is over: its status was handed to the transport, or the
// client is gone. The stream must not be used then. A handler is never destroyed within a call to
// it or to its stream.
class RpcHandler {
 public:
  virtual ~RpcHandler() = default;

  // A whole message, at most as long as the method takes.
  virtual void OnMessage(RpcMessage message) = 0;
  // The client will send no more messages.
  virtual void OnHalfClose() = 0;
  // Written bytes have been handed to the transport.
  virtual void OnSent() {}
  // The call ends with this status, by the handler's Finish or because a message cannot be taken.
  // Must not throw.
  virtual void OnFinished(const absl::Status& status) { (void)status; }
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_STREAM_H_

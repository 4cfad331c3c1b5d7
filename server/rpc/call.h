#ifndef LOWKEY_SERVER_RPC_CALL_H_
#define LOWKEY_SERVER_RPC_CALL_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/http/exchange.h"
#include "server/net/refusals.h"
#include "server/rpc/frames.h"
#include "server/rpc/registry.h"
#include "server/rpc/stream.h"

namespace lowkey {

// RpcServices holds what all calls of a server share; everything must outlive the calls.
struct RpcServices {
  const RpcRegistry& registry;
  OnRefusal on_refusal;
};

// Runs gRPC's protocol for one exchange: checks the head, puts messages together, frames answers
// (gRPC over HTTP/2). It belongs to the exchange's loop.
class RpcCall final : public HttpHandler, private RpcStream {
 public:
  // The caller has passed the credentials; `context.deadline` is read from the head here.
  RpcCall(const RpcServices& services, HttpExchange& exchange, EventLoop& loop, RpcContext context);

  void OnHead() override;
  void OnBody(std::string_view bytes) override;
  void OnBodyEnd() override;
  void OnSent() override;

 private:
  const RpcContext& context() const override { return context_; }
  EventLoop& loop() const override { return loop_; }
  std::optional<std::string_view> Metadata(std::string_view name) const override {
    return exchange_.head().One(name);
  }
  void Write(std::string_view message) override;
  void Finish(const absl::Status& status) override;
  size_t unsent_bytes() const override { return exchange_.unsent_bytes(); }

  // Runs a step of the call; a lack of memory ends the call.
  template <typename Step>
  void Run(const Step& step);
  // Ends the call when there is no memory to say how.
  void Break();
  absl::Status CheckHead();
  absl::Status TakeMessages(std::string_view bytes);
  absl::Status Hold(size_t n_bytes);
  void AllowMore();

  const RpcServices& services_;
  HttpExchange& exchange_;
  EventLoop& loop_;
  RpcContext context_;
  const RpcMethod* const method_;  // null: there is none of this name
  RpcFrameReader reader_;
  std::shared_ptr<const HeldBytes> held_;  // for the message that comes
  size_t n_allowed_ = 0, n_received_ = 0;
  bool is_started_ = false, is_finished_ = false;
  std::unique_ptr<RpcHandler> handler_;  // null: the head was refused
};

// Refuses an exchange as gRPC does, with a status and no message.
void RefuseRpc(HttpExchange& exchange, const absl::Status& status);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_CALL_H_

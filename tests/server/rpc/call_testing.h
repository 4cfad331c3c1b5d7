#ifndef LOWKEY_TESTS_SERVER_RPC_CALL_TESTING_H_
#define LOWKEY_TESTS_SERVER_RPC_CALL_TESTING_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/session.h"
#include "server/rpc/call.h"
#include "server/rpc/frames.h"
#include "tests/server/http/h2_client.h"

namespace lowkey {

// A connection's end that hands every request to a registry's methods.
class RpcHost final : public HttpSessionHost {
 public:
  RpcHost(const RpcRegistry& registry, EventLoop& loop)
      : services_{registry, [this](NetworkRefusal reason) { CountRefusal(reason); }}, loop_(loop) {}

  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange) override {
    RpcContext context;
    context.method = exchange.head().path;
    context.peer = peer;
    return std::make_unique<RpcCall>(services_, exchange, loop_, std::move(context));
  }
  void WantsFlush() override {}
  void CountRefusal(NetworkRefusal reason) override { ++refusals[reason]; }

  std::map<NetworkRefusal, int> refusals;
  Peer peer;  // who calls

 private:
  const RpcServices services_;
  EventLoop& loop_;
};

inline HttpFields CallFields(std::string path) {
  HttpFields fields = RequestFields("POST", std::move(path));
  fields.push_back({"content-type", "application/grpc"});
  fields.push_back({"te", "trailers"});
  return fields;
}

inline std::string Framed(std::string_view message) {
  return RpcPrefix(message.size()).append(message);
}

// The value of a field in an answer's head or trailers; "" without it.
inline std::string ValueOf(const H2Client::Answer& answer, std::string_view name) {
  for (const HttpFields* fields : {&answer.head, &answer.trailers}) {
    for (const HttpField& field : *fields) {
      if (field.name == name) return field.value;
    }
  }
  return "";
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_RPC_CALL_TESTING_H_

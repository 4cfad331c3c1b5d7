#ifndef LOWKEY_SERVER_API_HTTP_ROUTES_H_
#define LOWKEY_SERVER_API_HTTP_ROUTES_H_

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "server/api/http/http_call.h"
#include "server/http/exchange.h"
#include "server/net/event_loop.h"
#include "server/net/peer.h"
#include "server/request/call_id.h"
#include "server/request/tenant.h"
#include "server/rpc/single_request.h"

namespace lowkey {

// A request that has passed the credentials. The exchange's head lives until the handler's OnHead
// returns.
struct RoutedRequest {
  HttpExchange& exchange;
  EventLoop& loop;
  const Peer& peer;
  Tenant tenant;
  CallId id = {};
  std::shared_ptr<bool> is_logged = nullptr;  // RpcContext's
};

// Returns what is known of the call that the request makes.
RpcContext ContextOf(const RoutedRequest& request);

// Makes the handler of one request.
using MakeRoute = std::function<std::unique_ptr<HttpHandler>(const RoutedRequest& request)>;

// Makes handlers that answer on a worker, from the path and the message.
MakeHttpHandler OnWorker(const RpcWorkers& workers, RunUnary run);

// The paths of the HTTP APIs and pages. Filled before the server starts, then read by all loops.
// The rights of paths are in the table of server/front/call_guard.cc.
class HttpRoutes {
 public:
  // Adds what answers a method ("GET" answers HEAD too) on a path. A path that ends with a slash,
  // other than "/" itself, stands for all paths that begin with it and have no longer entry.
  // Each pair may be added once.
  void Add(std::string_view method, std::string_view path, MakeRoute make);

  // Adds a call: POST has a body of JSON, GET none. `services` must outlive the routes.
  void AddCall(std::string_view method, std::string_view path, const HttpServices& services,
               MakeHttpHandler make);

  bool Has(std::string_view path) const { return Find(path) != nullptr; }

  // Null for a path that was not added. A method that was not: 405, with the error's object.
  std::unique_ptr<HttpHandler> MakeHandler(const RoutedRequest& request) const;

 private:
  using Methods = std::map<std::string, MakeRoute, std::less<>>;

  const Methods* Find(std::string_view path) const;

  std::map<std::string, Methods, std::less<>> paths_;
  std::set<std::string> folders_;  // those of them that end with a slash
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_ROUTES_H_

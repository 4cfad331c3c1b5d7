#ifndef LOWKEY_SERVER_FRONT_OPS_H_
#define LOWKEY_SERVER_FRONT_OPS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/front/connection.h"
#include "server/front/front.h"
#include "server/metrics/metrics.h"

namespace lowkey {

// The pages for probes and Prometheus, for GET and HEAD:
//   /health   200 while the process lives
//   /ready    200 while it serves; 503 while it loads, drains or cannot accept connections; the
//             body names the state
//   /metrics  Metrics::Text
struct OpsPages {
  const Metrics& metrics;                      // must outlive the pages
  std::function<bool()> can_accept = nullptr;  // null: it can

  // Null for another path.
  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange) const;
};

// Returns whether OpsPages has a page of this path.
bool IsPage(std::string_view path);

// Answers with a short text, and reads nothing of the request.
std::unique_ptr<HttpHandler> MakeTextAnswer(HttpExchange& exchange, int status, std::string text,
                                            HttpFields fields = {});

// Serves these pages alone, in clear and to everyone, on a port and a thread of its own.
class OpsServer final : private Router {
 public:
  // Errors are those of Front::Start.
  static absl::StatusOr<std::unique_ptr<OpsServer>> Start(Metrics& metrics, const std::string& host,
                                                          int port,
                                                          const ConnectionLimits& limits = {});

  int port() const { return front_->port(); }

 private:
  explicit OpsServer(Metrics& metrics) : pages_{metrics} {}

  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange, EventLoop& loop,
                                           const Peer& peer) const override;

  const OpsPages pages_;
  HttpBudgets budgets_;
  std::unique_ptr<Front> front_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_OPS_H_

#ifndef LOWKEY_SERVER_METRICS_HTTP_SERVER_H_
#define LOWKEY_SERVER_METRICS_HTTP_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/metrics/metrics.h"

struct mg_context;

namespace lowkey {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an IPv4 address or "localhost"
  int port = 0;                    // 0: a free port
  // The longest time from a connection's start to the end of its headers.
  absl::Duration request_timeout = absl::Seconds(5);
};

// Answers GET and HEAD of three paths for probes and Prometheus, one request per connection:
//   /health   200 while the process lives
//   /ready    200 while it serves; 503 while it loads or drains; the body names the state
//   /metrics  Metrics::Text
// Other paths are 404, other methods 405. Bodies and queries are not read, headers are at most
// 8 KiB, two requests are answered at once and a few wait. The server has threads of its own:
// requests never wait for the model, nor the model for them.
class HttpServer {
 public:
  // `metrics` must outlive the server. UNAVAILABLE if listening on the address fails.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const Metrics& metrics,
                                                           const HttpServerOptions& options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  HttpServer() = default;

  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_METRICS_HTTP_SERVER_H_

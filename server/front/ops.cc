#include "server/front/ops.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr char kPlainText[] = "text/plain; charset=utf-8";

class TextAnswer final : public HttpHandler {
 public:
  TextAnswer(HttpExchange& exchange, int status, std::string text, HttpFields fields)
      : exchange_(exchange), status_(status), text_(std::move(text)), fields_(std::move(fields)) {}

  void OnHead() override {
    fields_.push_back({"content-length", absl::StrCat(text_.size())});
    fields_.push_back({"cache-control", "no-store"});
    if (exchange_.head().method == "HEAD") return exchange_.StartAndEnd(status_, fields_);
    exchange_.Start(status_, fields_);
    exchange_.Write(text_);
    exchange_.End({});
  }
  void OnBody(std::string_view) override {}
  void OnBodyEnd() override {}

 private:
  HttpExchange& exchange_;
  const int status_;
  const std::string text_;
  HttpFields fields_;
};

}  // namespace

std::unique_ptr<HttpHandler> MakeTextAnswer(HttpExchange& exchange, int status, std::string text,
                                            HttpFields fields) {
  fields.push_back({"content-type", kPlainText});
  return std::make_unique<TextAnswer>(exchange, status, std::move(text), std::move(fields));
}

bool IsPage(std::string_view path) {
  return path == "/health" || path == "/ready" || path == "/metrics";
}

std::unique_ptr<HttpHandler> OpsPages::MakeHandler(HttpExchange& exchange) const {
  const std::string& path = exchange.head().path;
  if (!IsPage(path)) return nullptr;
  if (exchange.head().method != "GET" && exchange.head().method != "HEAD") {
    return MakeTextAnswer(exchange, 405, "expected GET or HEAD\n", {{"allow", "GET, HEAD"}});
  }
  if (path == "/health") return MakeTextAnswer(exchange, 200, "alive\n");
  if (path == "/ready") {
    const ServingState state = metrics.state();
    if (state == ServingState::kServing && can_accept != nullptr && !can_accept()) {
      return MakeTextAnswer(exchange, 503, "cannot accept connections\n");
    }
    return MakeTextAnswer(exchange, state == ServingState::kServing ? 200 : 503,
                          absl::StrCat(std::string(NameOf(state)), "\n"));
  }
  return std::make_unique<TextAnswer>(
      exchange, 200, metrics.Text(),
      HttpFields{{"content-type", "text/plain; version=0.0.4; charset=utf-8"}});
}

absl::StatusOr<std::unique_ptr<OpsServer>> OpsServer::Start(Metrics& metrics,
                                                            const std::string& host, int port,
                                                            const ConnectionLimits& limits) {
  std::unique_ptr<OpsServer> server(new OpsServer(metrics));
  FrontOptions options;
  options.host = host;
  options.port = port;
  options.max_connections = 64;
  options.max_connections_per_peer = 64;  // a probe and a scraper may well be one machine
  options.limits = limits;
  options.on_refusal = [&metrics](NetworkRefusal reason) { metrics.CountNetworkRefusal(reason); };
  LK_ASSIGN_OR_RETURN(server->front_, Front::Start(*server, server->budgets_, options));
  return server;
}

std::unique_ptr<HttpHandler> OpsServer::MakeHandler(HttpExchange& exchange, EventLoop&,
                                                    const Peer&) const {
  exchange.Trust();
  std::unique_ptr<HttpHandler> handler = pages_.MakeHandler(exchange);
  if (handler != nullptr) return handler;
  return MakeTextAnswer(exchange, 404, "not found: expected /health, /ready or /metrics\n");
}

}  // namespace lowkey

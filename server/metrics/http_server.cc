#include "server/metrics/http_server.h"

#include <civetweb.h>

#include <string_view>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

struct Answer {
  int code = 200;
  std::string reason = "OK";
  std::string body;
  std::string type = "text/plain; charset=utf-8";
};

Answer AnswerTo(const Metrics& metrics, std::string_view method, std::string_view path) {
  if (method != "GET" && method != "HEAD") {
    return {405, "Method Not Allowed", "expected GET or HEAD\n"};
  }
  if (path == "/health") return {.body = "alive\n"};
  if (path == "/metrics") {
    return {.body = metrics.Text(), .type = "text/plain; version=0.0.4; charset=utf-8"};
  }
  if (path != "/ready") return {404, "Not Found", "expected /health, /ready or /metrics\n"};
  const ServingState state = metrics.state();
  std::string body = absl::StrCat(std::string(NameOf(state)), "\n");
  if (state == ServingState::kServing) return {.body = std::move(body)};
  return {503, "Service Unavailable", std::move(body)};
}

std::string_view ViewOf(const char* text) { return text == nullptr ? "" : text; }

// civetweb calls this for every request before anything else.
int OnRequest(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  const auto& metrics = *static_cast<const Metrics*>(request->user_data);
  const std::string_view method = ViewOf(request->request_method);
  const Answer answer = AnswerTo(metrics, method, ViewOf(request->local_uri_raw));
  std::string text =
      absl::StrCat("HTTP/1.1 ", answer.code, " ", answer.reason, "\r\nContent-Type: ", answer.type,
                   "\r\nContent-Length: ", answer.body.size(), "\r\nCache-Control: no-store\r\n",
                   answer.code == 405 ? "Allow: GET, HEAD\r\n" : "", "Connection: close\r\n\r\n");
  if (method != "HEAD") text += answer.body;
  // Otherwise civetweb would read an unwanted body to its end.
  mg_disable_connection_keep_alive(connection);
  mg_write(connection, text.data(), text.size());
  return answer.code;
}

int DropLogLine(const mg_connection*, const char*) { return 1; }

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Metrics& metrics,
                                                              const HttpServerOptions& options) {
  const std::string address = absl::StrCat(options.host, ":", options.port);
  const std::string timeout_ms = absl::StrCat(absl::ToInt64Milliseconds(options.request_timeout));
  // civetweb's own files, directories, CGI and authentication stay off: there is no document root.
  const char* settings[] = {"listening_ports",
                            address.c_str(),
                            "num_threads",
                            "2",
                            "connection_queue",
                            "16",
                            "listen_backlog",
                            "16",
                            "max_request_size",
                            "8192",
                            "request_timeout_ms",
                            timeout_ms.c_str(),
                            "linger_timeout_ms",
                            "1000",
                            "enable_keep_alive",
                            "no",
                            "decode_url",
                            "no",
                            "enable_directory_listing",
                            "no",
                            nullptr};
  static const unsigned kFeatures = mg_init_library(0);
  (void)kFeatures;
  mg_callbacks callbacks = {};
  callbacks.begin_request = OnRequest;
  callbacks.log_message = DropLogLine;  // strangers' requests are not worth a line each
  std::unique_ptr<HttpServer> server(new HttpServer());
  server->context_ = mg_start(&callbacks, const_cast<Metrics*>(&metrics), settings);
  mg_server_port port = {};
  if (server->context_ == nullptr || mg_get_server_ports(server->context_, 1, &port) != 1) {
    return absl::UnavailableError(
        absl::StrCat(address, ": cannot listen, expected a free port of an IPv4 address"));
  }
  server->port_ = port.port;
  return server;
}

HttpServer::~HttpServer() {
  if (context_ != nullptr) mg_stop(context_);
}

}  // namespace lowkey

#include "server/api/http/browser_guard.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/api/http/api_error.h"

namespace lowkey {
namespace {

constexpr size_t kMaxShownBytes = 128;

bool IsListed(const std::vector<std::string>& list, std::string_view value) {
  return std::any_of(list.begin(), list.end(), [value](const std::string& entry) {
    return absl::EqualsIgnoreCase(entry, std::string(value));
  });
}

bool IsSameOrigin(const HttpHead& head, std::string_view origin) {
  const size_t slashes = origin.find("://");
  if (slashes == std::string_view::npos) return false;
  const std::string_view scheme = origin.substr(0, slashes);
  return (scheme == "http" || scheme == "https") &&
         absl::EqualsIgnoreCase(std::string(origin.substr(slashes + 3)), head.authority);
}

// Without the port, and without the brackets of an IPv6 address.
std::string HostOf(std::string_view authority) {
  if (!authority.empty() && authority[0] == '[') {
    return std::string(authority.substr(1, authority.find(']') - 1));
  }
  return std::string(authority.substr(0, authority.find(':')));
}

bool IsAddress(const std::string& host) {
  in6_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsKnownHost(const BrowserRules& rules, const std::string& authority) {
  const std::string host = HostOf(authority);
  return authority.empty() || IsAddress(host) || absl::EqualsIgnoreCase(host, "localhost") ||
         IsListed(rules.hosts, host) || IsListed(rules.hosts, authority);
}

// An origin other than the server's own that the rules name; nullopt: none.
std::optional<std::string> OtherOrigin(const HttpHead& head, const BrowserRules& rules) {
  const std::vector<std::string_view> origins = head.All("origin");
  if (origins.size() != 1 || IsSameOrigin(head, origins[0])) return std::nullopt;
  if (!IsListed(rules.origins, origins[0]) && !IsListed(rules.origins, "*")) return std::nullopt;
  return std::string(origins[0]);
}

// Says which requests a page may send.
class Preflight final : public HttpHandler {
 public:
  explicit Preflight(HttpExchange& exchange) : exchange_(exchange) {}

  void OnHead() override {
    HttpFields fields = {{"access-control-allow-methods", "GET, HEAD, POST"},
                         {"access-control-max-age", "600"}};
    // Clients send fields of their own: any may be sent, and only known ones are read.
    const auto asked = exchange_.head().One("access-control-request-headers");
    if (asked.has_value()) {
      fields.push_back({"access-control-allow-headers", std::string(*asked)});
    }
    exchange_.StartAndEnd(204, fields);
  }
  void OnBody(std::string_view) override {}
  void OnBodyEnd() override {}

 private:
  HttpExchange& exchange_;
};

}  // namespace

absl::Status CheckBrowser(const HttpHead& head, const BrowserRules& rules) {
  if (rules.checks_host && !IsKnownHost(rules, head.authority)) {
    return WithErrorCode(absl::PermissionDeniedError(absl::StrCat(
                             "host: \"", head.authority.substr(0, kMaxShownBytes),
                             "\", expected an address, localhost or one of serve --allowed-hosts")),
                         "host_not_allowed");
  }
  for (const std::string_view origin : head.All("origin")) {
    if (IsSameOrigin(head, origin) || OtherOrigin(head, rules).has_value()) continue;
    return WithErrorCode(absl::PermissionDeniedError(absl::StrCat(
                             "origin: \"", std::string(origin.substr(0, kMaxShownBytes)),
                             "\", expected this server's own or one of serve --cors-origin")),
                         "origin_not_allowed");
  }
  return absl::OkStatus();
}

std::unique_ptr<HttpHandler> MakeForBrowser(HttpExchange& exchange, const BrowserRules& rules,
                                            const MakeHandlerOf& make) {
  std::optional<std::string> origin = OtherOrigin(exchange.head(), rules);
  if (!origin.has_value()) return make(exchange);
  HttpFields fields = {
      {"access-control-allow-origin", *std::move(origin)},
      {"access-control-expose-headers", "x-request-id, retry-after, retry-after-ms"},
      {"vary", "origin"}};
  const bool is_preflight = exchange.head().method == "OPTIONS" &&
                            exchange.head().One("access-control-request-method").has_value();
  if (!is_preflight) return MakeWithFields(exchange, std::move(fields), make);
  return MakeWithFields(exchange, std::move(fields),
                        [](HttpExchange& inner) { return std::make_unique<Preflight>(inner); });
}

}  // namespace lowkey

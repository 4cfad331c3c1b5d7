#include "server/api/page/page.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/api/page/embedded_page.h"

namespace lowkey {
namespace {

// Returns a source of a policy: 'sha256-' and the hash in base 64. (The function of Abseil that
// reads hexadecimal bytes has another form in every version.)
std::string HashSource(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return absl::StrCat("'sha256-", absl::Base64Escape(bytes), "'");
}

const std::string& Policy() {
  static const auto* const policy = new std::string(
      absl::StrCat("default-src 'none'; script-src ", HashSource(kPageScriptHash), "; style-src ",
                   HashSource(kPageStyleHash),
                   "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'"));
  return *policy;
}

const std::string& Tag() {
  static const auto* const tag =
      new std::string(absl::StrCat("\"", std::string(kPageHash, 32), "\""));
  return *tag;
}

// Whether If-None-Match names the page that is served. Its comparison is the weak one.
bool HasPage(const HttpHead& head) {
  for (const std::string_view field : head.All("if-none-match")) {
    for (absl::string_view tag :
         absl::StrSplit(absl::string_view(field.data(), field.size()), ',')) {
      tag = absl::StripAsciiWhitespace(tag);
      absl::ConsumePrefix(&tag, "W/");
      if (tag == "*" || tag == Tag()) return true;
    }
  }
  return false;
}

class PageHandler final : public HttpHandler {
 public:
  explicit PageHandler(HttpExchange& exchange) : exchange_(exchange) {}

  void OnHead() override {
    const HttpHead& head = exchange_.head();
    HttpFields fields = {{"etag", Tag()},
                         {"cache-control", "no-cache"},
                         {"content-security-policy", Policy()},
                         {"x-content-type-options", "nosniff"},
                         {"referrer-policy", "no-referrer"}};
    if (head.method != "GET" && head.method != "HEAD") {
      return exchange_.StartAndEnd(405, {{"allow", "GET, HEAD"}, {"content-length", "0"}});
    }
    if (HasPage(head)) return exchange_.StartAndEnd(304, fields);
    fields.push_back({"content-type", "text/html; charset=utf-8"});
    fields.push_back({"content-length", absl::StrCat(PageHtml().size())});
    if (head.method == "HEAD") return exchange_.StartAndEnd(200, fields);
    exchange_.Start(200, fields);
    exchange_.Write(PageHtml());
    exchange_.End({});
  }
  void OnBody(std::string_view) override {}
  void OnBodyEnd() override {}

 private:
  HttpExchange& exchange_;
};

}  // namespace

std::string_view PageHtml() { return {kPageHtml, kPageBytes}; }

std::string_view PagePolicy() { return Policy(); }

std::unique_ptr<HttpHandler> MakePageHandler(HttpExchange& exchange) {
  if (exchange.head().path != "/") return nullptr;
  return std::make_unique<PageHandler>(exchange);
}

}  // namespace lowkey

#ifndef LOWKEY_SERVER_API_PAGE_PAGE_H_
#define LOWKEY_SERVER_API_PAGE_PAGE_H_

#include <memory>
#include <string_view>

#include "server/http/exchange.h"

namespace lowkey {

// The page that people see at `/`: page.html, with its style and its script inside.

// Returns the page's text.
std::string_view PageHtml();

// Returns the value of Content-Security-Policy: the page may run its own script and style, which
// are named by their hashes, and may talk to this server. It may do nothing else.
std::string_view PagePolicy();

// Answers GET and HEAD of `/`, with 304 to whoever has the page already. Null for another path.
std::unique_ptr<HttpHandler> MakePageHandler(HttpExchange& exchange);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_PAGE_PAGE_H_

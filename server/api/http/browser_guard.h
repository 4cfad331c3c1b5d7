#ifndef LOWKEY_SERVER_API_HTTP_BROWSER_GUARD_H_
#define LOWKEY_SERVER_API_HTTP_BROWSER_GUARD_H_

#include <memory>

#include "absl/status/status.h"
#include "server/api/http/browser_rules.h"
#include "server/api/http/with_fields.h"
#include "server/http/exchange.h"

namespace lowkey {

// PERMISSION_DENIED for a request of a page of another site that the rules do not name, or by an
// unknown name of the server.
absl::Status CheckBrowser(const HttpHead& head, const BrowserRules& rules);

// Runs an exchange that has passed CheckBrowser. For a page of a named origin, the answer says that
// the page may read it; a preflight is answered at once, without credentials.
std::unique_ptr<HttpHandler> MakeForBrowser(HttpExchange& exchange, const BrowserRules& rules,
                                            const MakeHandlerOf& make);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_BROWSER_GUARD_H_

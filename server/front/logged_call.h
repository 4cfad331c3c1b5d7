#ifndef LOWKEY_SERVER_FRONT_LOGGED_CALL_H_
#define LOWKEY_SERVER_FRONT_LOGGED_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/http/exchange.h"
#include "server/log/request_log.h"

namespace lowkey {

// Makes the handler of an exchange whose calls set `is_logged` once they have written their own
// line.
using MakeUnlogged = std::function<std::unique_ptr<HttpHandler>(HttpExchange& exchange,
                                                                std::shared_ptr<bool> is_logged)>;

// Returns `make`'s handler of the exchange. At the handler's end the log gets a line about the
// exchange, under the tenant's name and the request's id, unless the handler's own call has written
// one.
std::unique_ptr<HttpHandler> MakeLogged(HttpExchange& exchange, RequestLog& log,
                                        const std::string& tenant, const std::string& request_id,
                                        const MakeUnlogged& make);

// Returns whether requests for a path that tokens are asked for stay out of the log: /metrics, and
// the figures that an open page asks for every second.
bool IsLeftOutOfLog(std::string_view path);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_LOGGED_CALL_H_

#ifndef LOWKEY_SERVER_API_HTTP_WITH_FIELDS_H_
#define LOWKEY_SERVER_API_HTTP_WITH_FIELDS_H_

#include <functional>
#include <memory>

#include "server/http/exchange.h"

namespace lowkey {

// Makes the handler of one exchange.
using MakeHandlerOf = std::function<std::unique_ptr<HttpHandler>(HttpExchange& exchange)>;

// Returns `make`'s handler, whose answer gets these fields too; one that the handler sets itself
// stays as it is.
std::unique_ptr<HttpHandler> MakeWithFields(HttpExchange& exchange, HttpFields fields,
                                            const MakeHandlerOf& make);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_WITH_FIELDS_H_

#ifndef LOWKEY_SERVER_FRONT_COUNTED_EXCHANGE_H_
#define LOWKEY_SERVER_FRONT_COUNTED_EXCHANGE_H_

#include <functional>
#include <memory>
#include <string_view>

#include "server/http/exchange.h"

namespace lowkey {

// Receives how a request was answered: the name of the API that it belongs to, and its code. The
// code is the name of the gRPC status for APIs over gRPC, and HTTP's status as text for others. For
// a request that was cut off before its code was sent it is "CANCELLED" and "499".
using OnAnswered = std::function<void(std::string_view api, std::string_view code)>;

// Returns the API of a request: "grpc", "kserve", "openai", "ops", "page" or "other".
std::string_view ApiOf(const HttpHead& head);

// Returns `make`'s handler of the exchange. `on_answered` is called once, at the handler's end.
std::unique_ptr<HttpHandler> MakeCounted(
    HttpExchange& exchange, OnAnswered on_answered,
    const std::function<std::unique_ptr<HttpHandler>(HttpExchange&)>& make);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_COUNTED_EXCHANGE_H_

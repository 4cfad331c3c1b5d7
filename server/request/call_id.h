#ifndef LOWKEY_SERVER_REQUEST_CALL_ID_H_
#define LOWKEY_SERVER_REQUEST_CALL_ID_H_

#include <optional>
#include <string>
#include <string_view>

namespace lowkey {

// The name of one request over HTTP, by which its client, the proxies between and the log tell of
// it: the value of the field x-request-id in request and answer.
struct CallId {
  std::string text;         // valid, as IsRequestId says; empty: a call over gRPC
  bool is_clients = false;  // or drawn here
};

// Returns whether an id has at most kMaxRequestIdBytes, all of them letters, digits and signs of
// ASCII, and at least one.
bool IsRequestId(std::string_view id);

// Returns the client's id, or a drawn one where it is absent or not valid.
CallId TakeCallId(std::optional<std::string_view> clients);

// Returns an id for the request's generation, which no other has. A client or a proxy that tries
// again may send the same field, so a client's id gets a drawn end.
std::string GenerationId(const CallId& id);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_CALL_ID_H_

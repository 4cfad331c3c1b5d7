#ifndef LOWKEY_SERVER_HTTP_EXCHANGE_H_
#define LOWKEY_SERVER_HTTP_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/byte_budget.h"

namespace lowkey {

struct HttpField {
  bool operator==(const HttpField&) const = default;

  std::string name;  // in lower case
  std::string value;
};
using HttpFields = std::vector<HttpField>;

struct HttpHead {
  std::string method;     // "POST"
  std::string path;       // of the target, without the query; not decoded
  std::string query;      // without the question mark
  std::string authority;  // :authority, or Host
  HttpFields fields;      // without pseudo-header fields and without what frames a body
  bool is_http2 = false;
  bool has_body = false;  // false: no byte of a body will come

  // The values of a field's occurrences, in order.
  std::vector<std::string_view> All(std::string_view name) const;
  // Nullopt unless the field occurs exactly once.
  std::optional<std::string_view> One(std::string_view name) const;
};

// Why an exchange is cut off: HTTP/2's codes of RST_STREAM. HTTP/1.1 closes the connection.
enum class HttpReset : unsigned {
  kInternalError = 2,
  kCancel = 8,
  kEnhanceYourCalm = 11,
};

// One request and its answer, as a handler sees them, over HTTP/1.1 and HTTP/2 alike. It belongs to
// its connection's loop, and lives as long as its handler.
class HttpExchange {
 public:
  // Returns the head, which lives until OnHead returns.
  virtual const HttpHead& head() const = 0;

  // The handler can take n_bytes more of the body. HTTP/2 clients may send the first 64 KiB without
  // being allowed to, HTTP/1.1 clients nothing. Bytes that are allowed and do not come in time end
  // the exchange: allow the whole of what must come, and nothing that the client may leave out.
  virtual void AllowBody(size_t n_bytes) = 0;

  // Takes n_bytes of the memory for bodies, for a handler that keeps so much of them: before it
  // allows a body that may be long. Null if the connection, or all of them, hold too much; that is
  // counted, and the handler refuses the request.
  virtual std::shared_ptr<const HeldBytes> HoldBody(size_t n_bytes) = 0;

  // Begins the answer. 200 to 599; once.
  virtual void Start(int status, const HttpFields& fields) = 0;
  // More of the answer's body, after Start.
  virtual void Write(std::string_view bytes) = 0;
  // Ends the answer; trailers are sent over HTTP/2 alone. Start must have been called. A body that
  // is still coming is dropped.
  virtual void End(const HttpFields& trailers) = 0;
  // Start and End at once: one block of header fields and no body.
  virtual void StartAndEnd(int status, const HttpFields& fields) = 0;

  // Ends the exchange without its answer, or within it.
  virtual void Reset(HttpReset reason) = 0;

  // Bytes of the body that were written and have not been handed to the transport.
  virtual size_t unsent_bytes() const = 0;

  // The request had valid credentials: its connection is no stranger's from now on.
  virtual void Trust() = 0;

 protected:
  ~HttpExchange() = default;
};

// Handles one exchange, on its loop's thread. Its destruction says that the exchange is over: its
// answer was handed to the transport, or it was cut off. The exchange must not be used then. A
// handler is never destroyed within a call to it or to its exchange.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Once, at first.
  virtual void OnHead() = 0;
  // More of the body, never empty. Not called after End or Reset.
  virtual void OnBody(std::string_view bytes) = 0;
  // The body is whole. Called for a request without one, too.
  virtual void OnBodyEnd() = 0;
  // Bytes of the answer have been handed to the transport; unsent_bytes is smaller.
  virtual void OnSent() {}
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_EXCHANGE_H_

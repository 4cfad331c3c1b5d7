#ifndef LOWKEY_SERVER_HTTP_SESSION_H_
#define LOWKEY_SERVER_HTTP_SESSION_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/http/byte_budget.h"
#include "server/http/exchange.h"
#include "server/http/limits.h"
#include "server/net/refusals.h"

namespace lowkey {

// HttpSessionHost is what a session asks of the connection that it belongs to.
class HttpSessionHost {
 public:
  // Makes the handler of a request whose head is whole and valid. Never null.
  virtual std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange) = 0;
  // A handler has made output outside of the session's own methods: Produce should be called soon.
  virtual void WantsFlush() = 0;
  virtual void CountRefusal(NetworkRefusal reason) = 0;

 protected:
  ~HttpSessionHost() = default;
};

// The server's side of one connection's protocol: bytes and times go in, bytes and exchanges come
// out. It knows no socket and no clock. Its destruction destroys the handlers that are left.
class HttpSession {
 public:
  virtual ~HttpSession() = default;

  // Takes bytes that have come. Must not be called when is_over.
  virtual void Receive(std::string_view bytes, absl::Time now) = 0;
  // The client will send nothing more. Over HTTP/1.1 that ends an exchange whose answer runs.
  virtual void ReceiveEnd(absl::Time now) = 0;

  // Appends output to `out` until it has `max_bytes` or nothing is left.
  virtual void Produce(size_t max_bytes, std::string& out, absl::Time now) = 0;

  // Checks deadlines; call it every 100 ms or so.
  virtual void OnTick(absl::Time now) = 0;

  // New requests are still answered, but the client is told to go elsewhere, and the session is
  // over when no exchange is left.
  virtual void BeginDrain() = 0;
  // Returns whether the client knows of the drain, or had half a second to learn of it, and what it
  // asked before has come to its end.
  virtual bool has_told() const = 0;

  // Returns whether more bytes should be read: false while too much output waits, or a body waits
  // to be allowed.
  virtual bool wants_input() const = 0;
  // Returns whether Produce would append something.
  virtual bool has_output() const = 0;
  // Nothing more should be read or handled. What Produce still gives is written, then the
  // connection is closed.
  virtual bool is_over() const = 0;

  virtual size_t n_exchanges() const = 0;  // begun and not over
  virtual bool is_trusted() const = 0;     // a request had valid credentials
};

// All arguments must outlive the session, and `budgets` what handlers hold.
std::unique_ptr<HttpSession> MakeHttp1Session(HttpSessionHost& host, const HttpLimits& limits,
                                              HttpBudgets& budgets, absl::Time now);
std::unique_ptr<HttpSession> MakeHttp2Session(HttpSessionHost& host, const HttpLimits& limits,
                                              HttpBudgets& budgets, absl::Time now);

// HTTP/2's first 24 bytes from a client.
inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_SESSION_H_

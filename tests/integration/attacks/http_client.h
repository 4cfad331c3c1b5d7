#ifndef LOWKEY_TESTS_INTEGRATION_ATTACKS_HTTP_CLIENT_H_
#define LOWKEY_TESTS_INTEGRATION_ATTACKS_HTTP_CLIENT_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace lowkey {

// An HTTP/1.1 connection to 127.0.0.1 that is kept for one request after another, in clear or under
// TLS without a look at the server's certificate. Every wait ends after 20 seconds.
class HttpClient {
 public:
  enum class Over { kClear, kTls };

  HttpClient(int port, Over over);
  ~HttpClient();

  // Returns the answer's status line, fields and body; empty if no whole answer came. `token`:
  // empty for none.
  std::string Get(std::string_view path, std::string_view token = "");

 private:
  struct Stream;

  const std::unique_ptr<Stream> stream_;
};

// The first message of a TLS client, as OpenSSL makes it.
std::string MakeClientHello();

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_ATTACKS_HTTP_CLIENT_H_

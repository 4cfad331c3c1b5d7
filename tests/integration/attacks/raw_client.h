#ifndef LOWKEY_TESTS_INTEGRATION_ATTACKS_RAW_CLIENT_H_
#define LOWKEY_TESTS_INTEGRATION_ATTACKS_RAW_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "server/net/owned_socket.h"
#include "tests/server/http/h2_client.h"

namespace lowkey {

// A TCP connection to this machine over which an attacker says what it likes. No call waits longer
// than kPatience for the server to do something.
class RawClient {
 public:
  static constexpr absl::Duration kPatience = absl::Seconds(15);

  // Connects to 127.0.0.1 from 127.0.0.`from`: a server counts connections by their address.
  explicit RawClient(int port, int from = 1);

  // Whether the connection was made and the server has not ended it, as far as this side has read.
  bool is_open() const { return is_open_; }

  // Sends everything, and reads what comes meanwhile. Returns is_open().
  bool Send(std::string_view bytes);

  // Sends and reads nothing, until the socket has taken nothing for `patience`. Returns how many of
  // the bytes the socket took.
  size_t SendUnread(std::string_view bytes, absl::Duration patience);

  // Reads until `is_enough`, asked about everything received, or the server's end.
  bool Await(const std::function<bool(std::string_view received)>& is_enough,
             absl::Duration patience = kPatience);

  // Reads to the server's end. Returns whether it came.
  bool AwaitEnd(absl::Duration patience = kPatience);

  const std::string& received() const { return received_; }

 private:
  // Waits until bytes come or can be sent. False: neither was possible for so long.
  bool Move(std::string_view& unsent, absl::Duration patience);
  void ReadAvailable();
  void WriteAvailable(std::string_view& unsent);

  OwnedSocket socket_;
  bool is_open_ = false;
  std::string received_;
};

// An HTTP/2 connection after its preface and SETTINGS, which acknowledges nothing.
RawClient OpenHttp2(int port, int from = 1);

// HEADERS of a gRPC call, with further fields.
std::string MakeCallHead(uint32_t stream, std::string_view path, const HttpFields& more = {});
// DATA with a whole message, the call's last.
std::string MakeCallBody(uint32_t stream, std::string_view message);
// The five bytes before a message.
std::string MakePrefix(uint32_t n_bytes, char flag = 0);
// A whole call of grpc.health.v1.Health's method of that name, about the server.
std::string MakeHealthCall(uint32_t stream, std::string_view method);

// The frames that have come whole.
std::vector<H2Frame> FramesIn(std::string_view received);
// By stream, the fields of all HEADERS that came.
std::map<uint32_t, HttpFields> AnswersIn(std::string_view received);
// The value of a stream's field; empty if it did not come.
std::string FieldIn(std::string_view received, uint32_t stream, std::string_view name);
// The code of the GOAWAY frame that ended the connection, and what it says.
struct Goaway {
  uint32_t code = 0;
  std::string debug_data;
};
std::optional<Goaway> GoawayIn(std::string_view received);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_ATTACKS_RAW_CLIENT_H_

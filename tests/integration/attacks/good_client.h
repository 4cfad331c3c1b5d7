#ifndef LOWKEY_TESTS_INTEGRATION_ATTACKS_GOOD_CLIENT_H_
#define LOWKEY_TESTS_INTEGRATION_ATTACKS_GOOD_CLIENT_H_

#include <memory>
#include <string>
#include <vector>

#include "lowkey/v1/generation.pb.h"

namespace lowkey {

// A client by the official gRPC library, with a connection of its own. It tries no call again, so
// that a call which the server loses is seen. Thread-safe.
class GoodClient {
 public:
  static constexpr int kNumStreams = 8;

  // `authority`: PEM of who signed the server's certificate; empty: in clear.
  GoodClient(const std::string& address, const std::string& authority, const std::string& token);
  ~GoodClient();

  // Streams request `i` of kNumStreams. Returns its tokens, their log-probabilities to the bit and
  // its text, or a line that begins with "error".
  std::string Stream(int i) const;

  // All streams at once.
  std::vector<std::string> StreamAll() const;

  // Whether grpc.health.v1 says SERVING.
  bool CheckHealth() const;

  // Calls Generate, with messages as they are or compressed.
  enum class Compression { kNone, kGzip };
  struct Answer {
    int code = 0;  // gRPC's
    std::string message;
  };
  Answer Generate(const v1::GenerateRequest& request, Compression compression) const;

 private:
  struct Stubs;

  const std::string token_;
  const std::unique_ptr<const Stubs> stubs_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_ATTACKS_GOOD_CLIENT_H_

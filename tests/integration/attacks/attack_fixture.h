#ifndef LOWKEY_TESTS_INTEGRATION_ATTACKS_ATTACK_FIXTURE_H_
#define LOWKEY_TESTS_INTEGRATION_ATTACKS_ATTACK_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/attacks/good_client.h"
#include "tests/integration/attacks/http_client.h"
#include "tests/integration/attacks/raw_client.h"
#include "tests/integration/child_process.h"
#include "tests/testing/certificates.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {

// The real `lowkey serve` with the demo model. It asks for tokens, which attackers lack unless a
// test says otherwise.
class AttackTest : public ::testing::Test {
 protected:
  static constexpr char kToken[] = "token-of-the-good-client";

  struct ServeOptions {
    std::vector<std::string> flags = {};
    HttpClient::Over over = HttpClient::Over::kClear;
    bool asks_for_tokens = true;
    int descriptors = 0;  // the process's limit from its start; 0: this process's own
  };

  // How /health is asked for during an attack: each time by a new connection, or, where new ones
  // are refused, by one that was made before.
  enum class HealthBy { kNewConnections, kOldConnection };

  void SetUp() override;
  void TearDown() override;

  // Starts the server and notes the good streams' answers.
  void Serve(const ServeOptions& options);
  void Serve() { Serve({}); }

  // Runs `attack` beside good streams and probes of both healths. What must hold during it and
  // after it: streams are equal to the bit, every probe is answered, memory grows by less than
  // 64 MiB, and new connections are served. Prints figures under the test's name.
  void Withstand(const std::function<void()>& attack, HealthBy health = HealthBy::kNewConnections);

  // How often the server has refused something for a reason of docs/metrics.md.
  int64_t Refused(const std::string& reason) const;

  // Asks over a new connection. Empty: none came.
  std::string Get(const std::string& path) const;

  // The server's figure in /proc/PID/status, in bytes: "VmRSS" or "VmHWM".
  int64_t MemoryBytes(const std::string& name) const;
  // Lets VmHWM begin again at VmRSS.
  void ResetPeak() const;

  int port() const { return port_; }
  pid_t pid() const { return server_->pid(); }

  // A good client of its own connection.
  std::unique_ptr<GoodClient> NewClient() const;

 private:
  std::vector<std::string> Arguments(const ServeOptions& options) const;

  const TempDirectory directory_;
  const TestAuthority authority_{"test"};
  std::unique_ptr<ChildProcess> server_;
  HttpClient::Over over_ = HttpClient::Over::kClear;
  int port_ = 0;
  std::unique_ptr<GoodClient> client_;
  std::vector<std::string> expected_;
};

// Returns the factor for bounds on the server's memory, which mean nothing under AddressSanitizer.
int64_t MemoryFactor();

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_ATTACKS_ATTACK_FIXTURE_H_

#include "tests/integration/attacks/attack_fixture.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

constexpr int64_t kMaxGrowthBytes = int64_t{64} << 20;
constexpr absl::Duration kProbePause = absl::Milliseconds(5);
constexpr char kHealthy[] = "HTTP/1.1 200 ";

// Asks the same again and again on a thread of its own.
class Probe {
 public:
  explicit Probe(std::function<bool()> ask) : ask_(std::move(ask)), thread_([this] { Run(); }) {}
  ~Probe() { End(); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void End() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }

  // After End.
  int n_asked() const { return n_asked_; }
  int n_failed() const { return n_failed_; }
  double slowest_ms() const { return absl::ToDoubleMilliseconds(slowest_); }

 private:
  void Run() {
    do {
      const absl::Time begin = absl::Now();
      ++n_asked_;
      n_failed_ += ask_() ? 0 : 1;
      slowest_ = std::max(slowest_, absl::Now() - begin);
      absl::SleepFor(kProbePause);
    } while (!is_over_);
  }

  const std::function<bool()> ask_;
  std::atomic<bool> is_over_{false};
  int n_asked_ = 0, n_failed_ = 0;
  absl::Duration slowest_ = absl::ZeroDuration();
  std::thread thread_;
};

// Streams the good requests again and again, all at once, and compares their answers.
class StreamsInTurn {
 public:
  StreamsInTurn(const GoodClient& client, const std::vector<std::string>& expected) {
    for (int i = 0; i < GoodClient::kNumStreams; ++i) {
      running_.push_back(std::async(std::launch::async, [this, &client, &expected, i] {
        do {
          const std::string output = client.Stream(i);
          ++n_streams_;
          EXPECT_EQ(output, expected[static_cast<size_t>(i)]) << "stream " << i;
          if (output != expected[static_cast<size_t>(i)]) return;
        } while (!is_over_);
      }));
    }
  }

  void End() {
    is_over_ = true;
    for (auto& stream : running_) stream.wait();
  }
  int n_streams() const { return n_streams_; }

 private:
  std::atomic<bool> is_over_{false};
  std::atomic<int> n_streams_{0};
  std::vector<std::future<void>> running_;
};

// Attackers have many sockets.
void RaiseDescriptorLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int64_t MemoryFactor() {
#ifdef __SANITIZE_ADDRESS__
  return 1000;
#else
  return 1;
#endif
}

void AttackTest::SetUp() {
  RaiseDescriptorLimit();
  const TestAuthority::Issued issued = authority_.Issue("server");
  WriteFileOrDie(directory_.File("server.pem"), issued.certificate);
  WriteFileOrDie(directory_.File("server.key"), issued.key);
  WriteFileOrDie(
      directory_.File("tokens"),
      absl::StrCat(R"({"tenants": [{"name": "good", "tokens": [{"token": ")", kToken, "\"}]}]}"));
}

void AttackTest::TearDown() {
  if (server_ == nullptr) return;
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0) << server_->errors();
}

std::vector<std::string> AttackTest::Arguments(const ServeOptions& options) const {
  std::vector<std::string> arguments = {LOWKEY_BINARY, "serve",
                                        "--model",     SourcePath("models/tales"),
                                        "--port",      "0",
                                        "--json",      "--threads",
                                        "1",           "--cache-bytes",
                                        "64M",         "--profile",
                                        "none",        "--max-wait",
                                        "1h"};
  if (options.asks_for_tokens) {
    arguments.insert(arguments.end(), {"--tokens", directory_.File("tokens")});
  }
  if (options.over == HttpClient::Over::kTls) {
    arguments.insert(arguments.end(), {"--tls-cert", directory_.File("server.pem"), "--tls-key",
                                       directory_.File("server.key")});
  }
  arguments.insert(arguments.end(), options.flags.begin(), options.flags.end());
  if (options.descriptors > 0) {
    arguments.insert(arguments.begin(), {"/bin/sh", "-c", "ulimit -n \"$0\"; exec \"$@\"",
                                         absl::StrCat(options.descriptors)});
  }
  return arguments;
}

void AttackTest::Serve(const ServeOptions& options) {
  over_ = options.over;
  server_ = std::make_unique<ChildProcess>(Arguments(options));
  ASSERT_TRUE(server_->WaitForOutput("\n")) << server_->errors();
  port_ = nlohmann::json::parse(server_->output())["port"].get<int>();
  client_ = NewClient();
  expected_ = client_->StreamAll();
  for (const std::string& output : expected_) ASSERT_EQ(output.substr(0, 8), "1 final,");
  ASSERT_EQ(client_->StreamAll(), expected_);
  ASSERT_TRUE(client_->CheckHealth());
}

std::unique_ptr<GoodClient> AttackTest::NewClient() const {
  const bool is_clear = over_ == HttpClient::Over::kClear;
  return std::make_unique<GoodClient>(absl::StrCat("127.0.0.1:", port_),
                                      is_clear ? "" : authority_.certificate(), kToken);
}

void AttackTest::Withstand(const std::function<void()>& attack, HealthBy health) {
  if (HasFatalFailure()) return;
  HttpClient old_connection(port_, over_);
  old_connection.Get("/metrics", kToken);  // a stranger's connection may have to make room
  ResetPeak();
  const int64_t begin_bytes = MemoryBytes("VmRSS");
  StreamsInTurn streams(*client_, expected_);
  Probe http([&] {
    const std::string answer =
        health == HealthBy::kOldConnection ? old_connection.Get("/health") : Get("/health");
    return answer.starts_with(kHealthy);
  });
  Probe rpc([&] { return client_->CheckHealth(); });
  attack();
  streams.End();
  http.End();
  rpc.End();
  const int64_t growth_bytes = MemoryBytes("VmHWM") - begin_bytes;

  EXPECT_EQ(http.n_failed(), 0) << "of " << http.n_asked();
  EXPECT_EQ(rpc.n_failed(), 0) << "of " << rpc.n_asked();
  EXPECT_LT(growth_bytes, kMaxGrowthBytes * MemoryFactor());
  EXPECT_TRUE(Get("/health").starts_with(kHealthy)) << "over a new connection, after the attack";
  EXPECT_EQ(NewClient()->StreamAll(), expected_) << "over a new connection, after the attack";
  std::printf(
      "  memory +%.1f MiB; slowest /health %.1f ms of %d, gRPC health %.1f ms of %d; %d streams\n",
      static_cast<double>(growth_bytes) / (1 << 20), http.slowest_ms(), http.n_asked(),
      rpc.slowest_ms(), rpc.n_asked(), streams.n_streams());
}

std::string AttackTest::Get(const std::string& path) const {
  return HttpClient(port_, over_).Get(path, kToken);
}

int64_t AttackTest::Refused(const std::string& reason) const {
  const std::string metrics = Get("/metrics");
  const std::string line_end = absl::StrCat("reason=\"", reason, "\"} ");
  for (size_t at = 0; (at = metrics.find(line_end, at)) != std::string::npos; ++at) {
    const std::string line = metrics.substr(metrics.rfind('\n', at) + 1);
    if (!line.starts_with("lowkey:network_refusals_total{")) continue;
    return std::strtoll(metrics.c_str() + at + line_end.size(), nullptr, 10);
  }
  ADD_FAILURE() << reason << ": no such reason in " << metrics;
  return 0;
}

int64_t AttackTest::MemoryBytes(const std::string& name) const {
  std::ifstream status(absl::StrCat("/proc/", pid(), "/status"));
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(name + ":")) {
      return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10) << 10;
    }
  }
  ADD_FAILURE() << name << ": not in the server's status";
  return 0;
}

void AttackTest::ResetPeak() const {
  std::ofstream(absl::StrCat("/proc/", pid(), "/clear_refs")) << "5";
}

}  // namespace lowkey

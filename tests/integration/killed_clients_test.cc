// Clients that die: processes of their own, killed at random moments from their connecting to
// their last token. LOWKEY_KILLED_CLIENTS=N sets how many.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "lowkey/v1/admin.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "tests/integration/child_process.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kAtOnce = 12;
constexpr int kLongestLifeMs = 150;

v1::GenerateRequest RequestOf(unsigned seed) {
  v1::GenerateRequest request;
  for (unsigned i = 0; i < 4 + seed % 200; ++i) {
    request.mutable_token_ids()->add_ids(static_cast<int32_t>(3 + (seed * 31 + i * 17) % 4000));
  }
  request.set_max_new_tokens(static_cast<int32_t>(1 + seed % (seed % 2 == 0 ? 4 : 400)));
  request.set_ignore_eos(true);
  request.set_n(static_cast<int32_t>(1 + seed % 3));
  constexpr const char* kMechanisms[] = {"standard", "atp", "taylorshift"};
  request.mutable_attention()->set_mechanism(kMechanisms[seed % 3]);
  return request;
}

// A client's whole life: request after request, streamed and not, until it is killed.
[[noreturn]] void LiveAsClient(const std::string& address, unsigned seed) {
  const auto stub =
      v1::Generation::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  for (;; ++seed) {
    grpc::ClientContext context;
    if (seed % 4 == 0) {
      v1::GenerateResponse response;
      stub->Generate(&context, RequestOf(seed), &response);
      continue;
    }
    auto reader = stub->GenerateStream(&context, RequestOf(seed));
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
    }
    reader->Finish();
  }
}

v1::StatsResponse WaitUntilIdle(const std::string& address) {
  const auto admin =
      v1::Admin::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  v1::StatsResponse stats;
  for (const auto end = Clock::now() + std::chrono::seconds(60); Clock::now() < end;) {
    grpc::ClientContext context;
    EXPECT_TRUE(admin->Stats(&context, {}, &stats).ok());
    if (stats.running_requests() + stats.waiting_requests() == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return stats;
}

// No gRPC in this process before the last fork: its threads do not come along.
TEST(KilledClientsTest, LeaveNothingBehind) {
  ChildProcess server({LOWKEY_BINARY, "serve", "--port", "0", "--model", SourcePath("models/tales"),
                       "--max-queued", "64", "--profile", "none"});
  ASSERT_TRUE(server.WaitForOutput(" ms\n")) << server.errors();
  const std::string& output = server.output();
  const size_t begin = output.find(" on ") + 4;
  const std::string address = output.substr(begin, output.find(' ', begin) - begin);

  const char* count = std::getenv("LOWKEY_KILLED_CLIENTS");
  const int n_clients = count == nullptr ? 200 : std::atoi(count);
  std::mt19937 rng(3);
  std::multimap<Clock::time_point, pid_t> dying;  // by when
  for (int n_born = 0; n_born < n_clients || !dying.empty();) {
    if (n_born < n_clients && dying.size() < kAtOnce) {
      const unsigned seed = rng();
      const auto life = std::chrono::microseconds(rng() % (1000 * kLongestLifeMs));
      const pid_t pid = fork();
      ASSERT_GE(pid, 0);
      if (pid == 0) LiveAsClient(address, seed);
      dying.emplace(Clock::now() + life, pid);
      ++n_born;
      continue;
    }
    const auto [when, pid] = *dying.begin();
    std::this_thread::sleep_until(when);
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    dying.erase(dying.begin());
  }

  const v1::StatsResponse stats = WaitUntilIdle(address);
  EXPECT_EQ(stats.running_requests(), 0);
  EXPECT_EQ(stats.waiting_requests(), 0);
  EXPECT_EQ(stats.cache_bytes_used(), 0);
  EXPECT_GT(stats.cancelled_requests(), 0);
  std::printf("%d clients killed: %lld requests cut, %lld whole; %lld left, %lld bytes of cache\n",
              n_clients, static_cast<long long>(stats.cancelled_requests()),
              static_cast<long long>(stats.finished_requests()),
              static_cast<long long>(stats.running_requests() + stats.waiting_requests()),
              static_cast<long long>(stats.cache_bytes_used()));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.errors();
}

}  // namespace
}  // namespace lowkey

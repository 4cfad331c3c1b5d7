#ifndef LOWKEY_TESTS_SERVER_API_KSERVE_FIXTURE_H_
#define LOWKEY_TESTS_SERVER_API_KSERVE_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "server/api/kserve/services.h"
#include "tests/server/fake_engine.h"
#include "tests/server/rpc/fake_stream.h"
#include "tests/server/testing.h"

namespace lowkey {

// The inference service over a fake engine.
class InferenceTest : public ::testing::Test {
 protected:
  InferenceTest() {
    AddInferenceService(registry_, inference_, [this] { return is_ready_.load(); });
  }

  FakeEngine engine_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}, {}, nullptr}};
  const std::unique_ptr<EventLoop> loop_ = EventLoop::Start().value();
  WorkerPool pool_{1, 128};
  const RpcWorkers workers_{pool_, [](NetworkRefusal) {}};
  Deliveries deliveries_{/*gathers=*/false};
  const GenerationContext generation_{service_,
                                      workers_,
                                      deliveries_,
                                      std::make_shared<LiveCalls>(),
                                      std::make_shared<LiveCalls>(),
                                      std::make_shared<PausedCalls>()};
  const InferContext inference_{generation_};
  RpcRegistry registry_;
  std::atomic<bool> is_ready_ = true;
};

// One call of a method. Its handler and its stream are used on the loop's thread alone.
class FakeCall {
 public:
  FakeCall(EventLoop& loop, const RpcRegistry& registry, const std::string& method,
           bool ends_at_error = false)
      : loop_(loop), stream_(&loop) {
    const RpcMethod* found = registry.Find("/inference.GRPCInferenceService/" + method);
    LK_CHECK(found != nullptr);
    if (ends_at_error) stream_.metadata["triton_grpc_error"] = "true";
    loop_.PostAndWait([&] { handler_ = found->make_handler(stream_); });
  }
  ~FakeCall() { End(); }

  void Send(const std::string& message) {
    loop_.PostAndWait([&] { handler_->OnMessage({message}); });
  }
  void HalfClose() {
    loop_.PostAndWait([&] { handler_->OnHalfClose(); });
  }
  void End() {
    loop_.PostAndWait([&] { handler_ = nullptr; });
  }
  // What the transport holds back, or has taken.
  void SetUnsent(size_t n_bytes) {
    loop_.PostAndWait([&] {
      stream_.unsent = n_bytes;
      handler_->OnSent();
    });
  }

  std::vector<std::string> Written() {
    std::vector<std::string> written;
    loop_.PostAndWait([&] { written = stream_.written; });
    return written;
  }
  std::optional<absl::Status> Status() {
    std::optional<absl::Status> status;
    loop_.PostAndWait([&] { status = stream_.finished; });
    return status;
  }

  // Waits for so many messages in all; returns them.
  std::vector<std::string> AwaitWritten(size_t n) {
    Await([this, n] { return Written().size() >= n; });
    return Written();
  }
  absl::Status AwaitStatus() {
    Await([this] { return Status().has_value(); });
    return Status().value_or(absl::UnknownError("the call goes on"));
  }

 private:
  template <typename Condition>
  static void Await(const Condition& condition) {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    while (!condition() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_TRUE(condition());
  }

  EventLoop& loop_;
  FakeRpcStream stream_;
  std::unique_ptr<RpcHandler> handler_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_API_KSERVE_FIXTURE_H_

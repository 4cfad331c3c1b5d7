#include "server/rpc/health.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "grpc/health/v1/health.pb.h"
#include "lowkey/v1/admin.pb.h"
#include "server/net/event_loop.h"
#include "tests/server/rpc/fake_stream.h"

namespace lowkey {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto kServing = HealthCheckResponse::SERVING;
constexpr auto kNotServing = HealthCheckResponse::NOT_SERVING;
constexpr auto kUnknown = HealthCheckResponse::SERVICE_UNKNOWN;

std::string RequestOf(const std::string& service) {
  HealthCheckRequest request;
  request.set_service(service);
  return request.SerializeAsString();
}

// One call. Its handler and its stream are used on the loop's thread alone.
class Call {
 public:
  Call(EventLoop& loop, const RpcRegistry& registry, const std::string& method)
      : loop_(loop), stream_(&loop) {
    const RpcMethod* found = registry.Find("/grpc.health.v1.Health/" + method);
    LK_CHECK(found != nullptr);
    loop_.PostAndWait([&] { handler_ = found->make_handler(stream_); });
  }
  ~Call() { End(); }

  void Send(const std::string& message) {
    loop_.PostAndWait([&] { handler_->OnMessage({message}); });
  }
  void HalfClose() {
    loop_.PostAndWait([&] { handler_->OnHalfClose(); });
  }
  void Request(const std::string& service) {
    Send(RequestOf(service));
    HalfClose();
  }
  void End() {
    loop_.PostAndWait([&] { handler_ = nullptr; });
  }

  // After all that was posted before.
  std::vector<std::string> Written() {
    std::vector<std::string> written;
    loop_.PostAndWait([&] { written = stream_.written; });
    return written;
  }
  std::vector<HealthCheckResponse::ServingStatus> Statuses() {
    std::vector<HealthCheckResponse::ServingStatus> statuses;
    for (const std::string& bytes : Written()) {
      HealthCheckResponse response;
      EXPECT_TRUE(response.ParseFromString(bytes));
      statuses.push_back(response.status());
    }
    return statuses;
  }
  // Nullopt: the call goes on.
  std::optional<absl::StatusCode> Code() {
    std::optional<absl::StatusCode> code;
    loop_.PostAndWait([&] {
      if (stream_.finished.has_value()) code = stream_.finished->code();
    });
    return code;
  }

 private:
  EventLoop& loop_;
  FakeRpcStream stream_;
  std::unique_ptr<RpcHandler> handler_;
};

class RpcHealthTest : public testing::Test {
 protected:
  RpcHealthTest() {
    const auto& admin = *v1::StatsRequest::descriptor()->file()->FindServiceByName("Admin");
    registry_.Add(*admin.method(0), [](RpcStream&) { return nullptr; });
  }

  Call Start(const std::string& method) { return Call(*loop_, registry_, method); }

  const std::unique_ptr<EventLoop> loop_ = EventLoop::Start().value();
  RpcRegistry registry_;
  RpcHealth health_{registry_};
};

TEST_F(RpcHealthTest, HasAHandlerForEachMethod) {
  RpcRegistry registry;
  const RpcHealth health(registry);
  EXPECT_TRUE(registry.CheckComplete().ok());
  EXPECT_THAT(registry.ServiceNames(), ElementsAre("grpc.health.v1.Health"));
}

TEST_F(RpcHealthTest, CheckSaysTheStatusOfKnownServices) {
  for (const char* service : {"", "lowkey.v1.Admin", "grpc.health.v1.Health"}) {
    for (const bool is_serving : {false, true}) {
      health_.SetServing(is_serving);
      Call call = Start("Check");
      call.Send(RequestOf(service));
      EXPECT_THAT(call.Statuses(), IsEmpty()) << "before the half-close";
      call.HalfClose();
      EXPECT_THAT(call.Statuses(), ElementsAre(is_serving ? kServing : kNotServing)) << service;
      EXPECT_EQ(call.Code(), absl::StatusCode::kOk);
    }
  }
}

TEST_F(RpcHealthTest, CheckDoesNotKnowOtherServices) {
  Call call = Start("Check");
  call.Request("lowkey.v1.Generation");
  EXPECT_THAT(call.Written(), IsEmpty());
  EXPECT_EQ(call.Code(), absl::StatusCode::kNotFound);
}

TEST_F(RpcHealthTest, ListHasEveryService) {
  health_.SetServing(false);
  Call call = Start("List");
  call.Send("");
  call.HalfClose();
  const std::vector<std::string> written = call.Written();
  ASSERT_EQ(written.size(), 1u);
  grpc::health::v1::HealthListResponse response;
  ASSERT_TRUE(response.ParseFromString(written[0]));
  std::map<std::string, HealthCheckResponse::ServingStatus> statuses;
  for (const auto& [name, status] : response.statuses()) statuses[name] = status.status();
  EXPECT_THAT(statuses, ElementsAre(std::pair("", kNotServing),
                                    std::pair("grpc.health.v1.Health", kNotServing),
                                    std::pair("lowkey.v1.Admin", kNotServing)));
  EXPECT_EQ(call.Code(), absl::StatusCode::kOk);
}

TEST_F(RpcHealthTest, EachMethodTakesExactlyOneMessage) {
  for (const char* method : {"Check", "List", "Watch"}) {
    Call none = Start(method);
    none.HalfClose();
    EXPECT_EQ(none.Code(), absl::StatusCode::kUnimplemented) << method;
    Call two = Start(method);
    two.Send("");
    two.Send("");
    two.Send("");
    EXPECT_EQ(two.Code(), absl::StatusCode::kUnimplemented) << method;
    two.HalfClose();
    EXPECT_THAT(two.Written(), IsEmpty()) << method;
    Call broken = Start(method);
    broken.Send("\x0A\x05");
    broken.HalfClose();
    EXPECT_EQ(broken.Code(), absl::StatusCode::kInvalidArgument) << method;
  }
}

TEST_F(RpcHealthTest, WatchSendsNowAndAtChanges) {
  Call call = Start("Watch");
  call.Request("lowkey.v1.Admin");
  EXPECT_THAT(call.Statuses(), ElementsAre(kServing));
  health_.SetServing(true);
  EXPECT_THAT(call.Statuses(), ElementsAre(kServing));
  health_.SetServing(false);
  health_.SetServing(false);
  EXPECT_THAT(call.Statuses(), ElementsAre(kServing, kNotServing));
  health_.SetServing(true);
  EXPECT_THAT(call.Statuses(), ElementsAre(kServing, kNotServing, kServing));
  EXPECT_EQ(call.Code(), std::nullopt);
}

TEST_F(RpcHealthTest, WatchOfAnUnknownServiceStaysOpen) {
  Call call = Start("Watch");
  call.Request("lowkey.v1.Generation");
  health_.SetServing(false);
  EXPECT_THAT(call.Statuses(), ElementsAre(kUnknown));
  EXPECT_EQ(call.Code(), std::nullopt);
}

TEST_F(RpcHealthTest, ShutdownEndsWatchesAndThoseThatComeLater) {
  Call before = Start("Watch");
  before.Request("");
  Call unknown = Start("Watch");
  unknown.Request("nobody");
  health_.Shutdown();
  EXPECT_EQ(before.Code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(unknown.Code(), absl::StatusCode::kUnavailable);
  health_.SetServing(true);
  health_.Shutdown();
  EXPECT_THAT(before.Statuses(), ElementsAre(kServing));
  Call after = Start("Watch");
  after.Request("");
  EXPECT_THAT(after.Statuses(), IsEmpty());
  EXPECT_EQ(after.Code(), absl::StatusCode::kUnavailable);
  Call check = Start("Check");
  check.Request("");
  EXPECT_THAT(check.Statuses(), ElementsAre(kNotServing));
}

TEST_F(RpcHealthTest, DoesNotTouchAWatchThatIsGone) {
  Call other = Start("Watch");
  other.Request("");
  Call call = Start("Watch");
  call.Request("");
  call.End();
  health_.SetServing(false);
  health_.Shutdown();
  EXPECT_EQ(call.Code(), std::nullopt);
  EXPECT_EQ(other.Code(), absl::StatusCode::kUnavailable);
}

TEST_F(RpcHealthTest, APostedChangeDoesNotReachAWatchThatIsGone) {
  const RpcMethod* method = registry_.Find("/grpc.health.v1.Health/Watch");
  FakeRpcStream stream(loop_.get());
  loop_->PostAndWait([&] {
    const std::unique_ptr<RpcHandler> handler = method->make_handler(stream);
    handler->OnMessage({""});
    handler->OnHalfClose();
    health_.SetServing(false);  // posted to this loop, which runs it after this work
  });
  loop_->PostAndWait([&] { EXPECT_EQ(stream.written.size(), 1u); });
}

TEST_F(RpcHealthTest, ChangesWhileWatchesComeAndGo) {
  const std::unique_ptr<EventLoop> changer = EventLoop::Start().value();
  changer->Post([this] {
    for (int i = 0; i < 500; ++i) health_.SetServing(i % 2 == 1);
  });
  for (int i = 0; i < 200; ++i) {
    Call call = Start("Watch");
    call.Request("");
  }
  changer->Stop();
  Call call = Start("Watch");
  call.Request("");
  EXPECT_THAT(call.Statuses(), ElementsAre(kServing));
}

}  // namespace
}  // namespace lowkey

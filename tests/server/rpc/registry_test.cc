#include "server/rpc/registry.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include "lowkey/v1/admin.pb.h"
#include "lowkey/v1/generation.pb.h"
#include "tests/server/rpc/fake_stream.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<RpcHandler> MakeNothing(RpcStream&) { return nullptr; }

const google::protobuf::ServiceDescriptor& Generation() {
  return *v1::GenerateRequest::descriptor()->file()->FindServiceByName("Generation");
}

void AddAll(const google::protobuf::ServiceDescriptor& service, RpcRegistry& registry) {
  for (int i = 0; i < service.method_count(); ++i) registry.Add(*service.method(i), &MakeNothing);
}

TEST(RpcRegistryTest, FindsMethodsByPath) {
  RpcRegistry registry;
  int n_made = 0;
  registry.Add(*Generation().FindMethodByName("Score"), [&n_made](RpcStream&) {
    ++n_made;
    return nullptr;
  });
  const RpcMethod* method = registry.Find("/lowkey.v1.Generation/Score");
  ASSERT_NE(method, nullptr);
  EXPECT_EQ(method->descriptor, Generation().FindMethodByName("Score"));
  FakeRpcStream stream;
  method->make_handler(stream);
  EXPECT_EQ(n_made, 1);
  for (const char* path : {"", "/", "lowkey.v1.Generation/Score", "/lowkey.v1.Generation/score",
                           "/lowkey.v1.Generation/Score/", "/lowkey.v1.Generation/Generate"}) {
    EXPECT_EQ(registry.Find(path), nullptr) << path;
  }
}

TEST(RpcRegistryTest, NamesTheMethodThatHasNoHandler) {
  RpcRegistry registry;
  EXPECT_TRUE(registry.CheckComplete().ok());
  for (int i = 0; i < Generation().method_count(); ++i) {
    const auto& method = *Generation().method(i);
    if (method.name() != "Tokenize") registry.Add(method, &MakeNothing);
  }
  const absl::Status status = registry.CheckComplete();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/lowkey.v1.Generation/Tokenize"));
  registry.Add(*Generation().FindMethodByName("Tokenize"), &MakeNothing);
  EXPECT_TRUE(registry.CheckComplete().ok());
}

TEST(RpcRegistryTest, ServiceNamesAreSorted) {
  RpcRegistry registry;
  AddAll(Generation(), registry);
  AddAll(*v1::StatsRequest::descriptor()->file()->FindServiceByName("Admin"), registry);
  EXPECT_THAT(registry.ServiceNames(), ElementsAre("lowkey.v1.Admin", "lowkey.v1.Generation"));
}

TEST(RpcRegistryDeathTest, AddsAMethodOnce) {
  RpcRegistry registry;
  AddAll(Generation(), registry);
  EXPECT_DEATH(registry.Add(*Generation().method(0), &MakeNothing), "check failed");
}

}  // namespace
}  // namespace lowkey

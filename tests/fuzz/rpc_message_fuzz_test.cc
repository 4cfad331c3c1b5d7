// The fuzz target over mutations of good bodies, always the same ones, and over attacks.

#include <gtest/gtest.h>

#include "lowkey/v1/generation.pb.h"
#include "server/rpc/frames.h"
#include "server/rpc/wire_check.h"
#include "tests/fuzz/json_mutations.h"

namespace lowkey {
namespace {

std::string Framed(const std::string& message) { return RpcPrefix(message.size()) + message; }

v1::GenerateRequest SeedRequest() {
  v1::GenerateRequest request;
  request.set_model("tales");
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("h\xC3\xA9llo");
  message.add_tool_calls()->set_arguments_json("{}");
  (*request.mutable_sampling()->mutable_logit_bias())[7] = 2.5f;
  request.mutable_sampling()->set_seed(~uint64_t{0});
  request.mutable_attention()->add_allowed("atp");
  request.add_stop("\n");
  request.add_stop_token_ids(300);
  return request;
}

std::string Seed() {
  v1::GenerateRequest ids;
  for (int i = 0; i < 50; ++i) ids.mutable_token_ids()->add_ids(i * 1000);
  return Framed(SeedRequest().SerializeAsString()) + Framed("") + Framed(ids.SerializeAsString());
}

TEST(RpcMessageFuzzTest, AcceptsItsSeed) {
  const std::string bytes = SeedRequest().SerializeAsString();
  v1::GenerateRequest request;
  ASSERT_TRUE(CheckWire(bytes, *request.GetDescriptor()).ok());
  ASSERT_TRUE(ParseMessage(bytes, request).ok());
  EXPECT_EQ(request.chat().messages(0).role(), "user");
  RunTarget(Seed());
}

TEST(RpcMessageFuzzTest, SurvivesTruncation) {
  for (size_t n = 0; n < Seed().size(); ++n) RunTarget(Seed().substr(0, n));
}

TEST(RpcMessageFuzzTest, SurvivesMutation) {
  const std::string seed = Seed();
  const std::string request = SeedRequest().SerializeAsString();
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    RunTarget(MutateJson(seed, seed.size(), random));
    RunTarget(Framed(MutateJson(request, request.size(), random)));
  }
}

TEST(RpcMessageFuzzTest, SurvivesRandomBytes) {
  std::mt19937 random(2);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 64);
    RunTarget(Framed(bytes));
  }
}

// 4 MiB of empty messages would become some 200 MiB of objects.
TEST(RpcMessageFuzzTest, RefusesMessagesThatGrowInMemory) {
  std::string chat;
  chat.reserve(size_t{4} << 20);
  while (chat.size() + 16 < size_t{4} << 20) chat.append("\x0A\x00", 2);
  std::string bytes = "\x2A";
  for (size_t n = chat.size(); n > 0; n >>= 7) {
    bytes.push_back(static_cast<char>((n & 0x7F) | (n > 0x7F ? 0x80 : 0)));
  }
  bytes += chat;
  const absl::Status status = CheckWire(bytes, *v1::GenerateRequest::descriptor());
  EXPECT_EQ(status.message(), "message: too many elements, expected at most 100000");
  RunTarget(Framed(bytes));
}

}  // namespace
}  // namespace lowkey

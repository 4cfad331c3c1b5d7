#include "server/front/counted_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace lowkey {
namespace {

using ::testing::ElementsAre;

// An exchange that notes what is asked of it.
class FakeExchange final : public HttpExchange {
 public:
  explicit FakeExchange(HttpHead head) : head_(std::move(head)) {}

  const HttpHead& head() const override { return head_; }
  void AllowBody(size_t n_bytes) override { calls.push_back("allow " + std::to_string(n_bytes)); }
  std::shared_ptr<const HeldBytes> HoldBody(size_t) override {
    calls.emplace_back("hold");
    return nullptr;
  }
  void Start(int status, const HttpFields&) override {
    calls.push_back("start " + std::to_string(status));
  }
  void Write(std::string_view bytes) override { calls.push_back("write " + std::string(bytes)); }
  void End(const HttpFields&) override { calls.emplace_back("end"); }
  void StartAndEnd(int status, const HttpFields&) override {
    calls.push_back("all " + std::to_string(status));
  }
  void Reset(HttpReset) override { calls.emplace_back("reset"); }
  size_t unsent_bytes() const override { return 7; }
  void Trust() override { calls.emplace_back("trust"); }

  std::vector<std::string> calls;

 private:
  const HttpHead head_;
};

// Does with the exchange what the test says, at its head.
class ScriptedHandler final : public HttpHandler {
 public:
  ScriptedHandler(HttpExchange& exchange, std::function<void(HttpExchange&)> script)
      : exchange_(exchange), script_(std::move(script)) {}
  void OnHead() override { script_(exchange_); }
  void OnBody(std::string_view bytes) override { exchange_.Write(bytes); }
  void OnBodyEnd() override { exchange_.End({}); }

 private:
  HttpExchange& exchange_;
  const std::function<void(HttpExchange&)> script_;
};

HttpHead Head(const std::string& path, bool is_rpc = false) {
  HttpHead head;
  head.method = is_rpc ? "POST" : "GET";
  head.path = path;
  head.is_http2 = is_rpc;
  if (is_rpc) head.fields = {{"content-type", "application/grpc"}};
  return head;
}

// Returns "api code" of a request that is answered as `script` does.
std::string Counted(FakeExchange& exchange, const std::function<void(HttpExchange&)>& script) {
  std::string counted;
  auto handler = MakeCounted(
      exchange,
      [&counted](std::string_view api, std::string_view code) {
        EXPECT_EQ(counted, "") << "once";
        counted = std::string(api) + " " + std::string(code);
      },
      [&](HttpExchange& inner) { return std::make_unique<ScriptedHandler>(inner, script); });
  handler->OnHead();
  EXPECT_EQ(counted, "") << "at the end";
  handler.reset();
  return counted;
}

TEST(CountedExchangeTest, HandsEverythingOn) {
  FakeExchange exchange(Head("/health"));
  auto handler = MakeCounted(
      exchange, [](std::string_view, std::string_view) {},
      [](HttpExchange& inner) {
        EXPECT_EQ(inner.head().path, "/health");
        EXPECT_EQ(inner.unsent_bytes(), 7u);
        inner.Trust();
        inner.AllowBody(5);
        inner.HoldBody(3);
        return std::make_unique<ScriptedHandler>(inner, [](HttpExchange& e) { e.Start(200, {}); });
      });
  handler->OnHead();
  handler->OnBody("x");
  handler->OnBodyEnd();
  handler->OnSent();
  EXPECT_THAT(exchange.calls,
              ElementsAre("trust", "allow 5", "hold", "start 200", "write x", "end"));
}

TEST(CountedExchangeTest, HttpIsCountedByItsStatus) {
  FakeExchange exchange(Head("/metrics"));
  EXPECT_EQ(Counted(exchange, [](HttpExchange& e) { e.Start(200, {}); }), "ops 200");
  EXPECT_EQ(Counted(exchange, [](HttpExchange& e) { e.StartAndEnd(404, {}); }), "ops 404");
  EXPECT_EQ(Counted(exchange, [](HttpExchange&) {}), "ops 499");
  EXPECT_EQ(Counted(exchange, [](HttpExchange& e) { e.Reset(HttpReset::kCancel); }), "ops 499");
}

TEST(CountedExchangeTest, GrpcIsCountedByItsStatusAndNotByHttps) {
  FakeExchange exchange(Head("/lowkey.v1.Generation/Generate", true));
  EXPECT_EQ(Counted(exchange,
                    [](HttpExchange& e) {
                      e.Start(200, {});
                      e.End({{"grpc-status", "0"}});
                    }),
            "grpc OK");
  EXPECT_EQ(Counted(exchange,
                    [](HttpExchange& e) {
                      e.StartAndEnd(200, {{"grpc-status", "8"}});
                    }),
            "grpc RESOURCE_EXHAUSTED");
  EXPECT_EQ(Counted(exchange, [](HttpExchange& e) { e.Start(200, {}); }), "grpc CANCELLED");
}

TEST(ApiOfTest, PathsBelongToApis) {
  for (const auto& [path, api] : std::initializer_list<std::pair<const char*, const char*>>{
           {"/health", "ops"},
           {"/ready", "ops"},
           {"/v1/chat/completions", "openai"},
           {"/tokenize", "openai"},
           {"/", "page"},
           {"/lowkey/v1/model", "page"},
           {"/etc/passwd", "other"},
           {"", "other"}}) {
    EXPECT_EQ(ApiOf(Head(path)), api) << path;
  }
  EXPECT_EQ(ApiOf(Head("/inference.GRPCInferenceService/ModelInfer", true)), "kserve");
  EXPECT_EQ(ApiOf(Head("/lowkey.v1.Admin/Stats", true)), "grpc");
  EXPECT_EQ(ApiOf(Head("/lowkey.v1.Admin/Stats")), "other") << "no call";
}

}  // namespace
}  // namespace lowkey

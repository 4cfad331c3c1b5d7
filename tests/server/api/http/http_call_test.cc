// Streams of events that stay silent, under a clock of the test's own.
#include "server/api/http/http_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

// Records an answer.
class FakeExchange final : public HttpExchange {
 public:
  explicit FakeExchange(std::string method) { head_.method = std::move(method); }

  const HttpHead& head() const override { return head_; }
  void AllowBody(size_t) override {}
  std::shared_ptr<const HeldBytes> HoldBody(size_t) override { return nullptr; }
  void Start(int status, const HttpFields& fields) override {
    http_status = status;
    for (const HttpField& field : fields) {
      if (field.name == "content-type") content_type = field.value;
    }
  }
  void Write(std::string_view bytes) override { body += bytes; }
  void End(const HttpFields&) override { has_ended = true; }
  void StartAndEnd(int status, const HttpFields&) override {
    http_status = status;
    has_ended = true;
  }
  void Reset(HttpReset) override { is_reset = true; }
  size_t unsent_bytes() const override { return 0; }
  void Trust() override {}

  int http_status = 0;  // 0: the answer has not begun
  std::string content_type, body;
  bool has_ended = false, is_reset = false;

 private:
  HttpHead head_;
};

// Shows its stream to the test.
class SilentHandler final : public RpcHandler {
 public:
  SilentHandler(HttpStream& stream, HttpStream*& shown) { shown = &stream; }
  void OnMessage(RpcMessage) override {}
  void OnHalfClose() override {}
};

// A call whose answer is a stream of events. All of it runs on the loop.
class EventStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    loop_ = *EventLoop::Start();
    Run([this] {
      call_ = std::make_unique<HttpCall>(
          services_, exchange_, *loop_, RpcContext{}, BodyKind::kNone,
          [this](HttpStream& stream) { return std::make_unique<SilentHandler>(stream, stream_); });
      call_->OnHead();
      begin_ = absl::Now();
      stream_->BecomeEventStream(
          [](const absl::Status& status) { return "data: " + std::string(status.message()); });
    });
  }
  void TearDown() override {
    Run([this] { call_.reset(); });
  }

  void Run(const std::function<void()>& work) { loop_->PostAndWait(work); }

  // Ticks as if `silence` or more had passed since the last write.
  void Tick(absl::Duration silence) {
    Run([&] { event_streams_.Tick(*loop_, absl::Now() + silence); });
  }

  EventStreams event_streams_{absl::Hours(24)};
  const HttpServices services_{event_streams_, [](NetworkRefusal) {}};
  FakeExchange exchange_{"GET"};
  std::unique_ptr<EventLoop> loop_;
  HttpStream* stream_ = nullptr;
  std::unique_ptr<HttpCall> call_;
  absl::Time begin_;
};

// A tick that is too early is dated from before the last write, one that is due from after it: so
// the time that the test itself takes does not matter.
TEST_F(EventStreamTest, StatusWaitsFiveSecondsForTheFirstEvent) {
  Run([this] { event_streams_.Tick(*loop_, begin_ + absl::Milliseconds(4900)); });
  EXPECT_EQ(exchange_.http_status, 0);
  Tick(absl::Seconds(5));
  EXPECT_EQ(exchange_.http_status, 200);
  EXPECT_THAT(exchange_.content_type, HasSubstr("text/event-stream"));
  EXPECT_EQ(exchange_.body, ":\n\n");
}

TEST_F(EventStreamTest, CommentComesAfterFifteenSecondsOfSilence) {
  Run([this] {
    const absl::Time before = absl::Now();
    stream_->Write("data: 1\n\n");
    event_streams_.Tick(*loop_, before + absl::Milliseconds(14900));
  });
  EXPECT_EQ(exchange_.body, "data: 1\n\n");
  Tick(absl::Seconds(15));
  EXPECT_EQ(exchange_.body, "data: 1\n\n:\n\n");
  Run([this] {
    const absl::Time before = absl::Now();
    stream_->Write("data: 2\n\n");
    event_streams_.Tick(*loop_, before + absl::Milliseconds(14900));
  });
  EXPECT_EQ(exchange_.body, "data: 1\n\n:\n\ndata: 2\n\n");
  Tick(absl::Seconds(15));
  EXPECT_EQ(exchange_.body, "data: 1\n\n:\n\ndata: 2\n\n:\n\n");
}

TEST_F(EventStreamTest, RefusalBeforeTheFirstEventKeepsItsStatus) {
  Run([this] { stream_->Finish(absl::ResourceExhaustedError("queue: full")); });
  EXPECT_EQ(exchange_.http_status, 429);
  EXPECT_EQ(exchange_.content_type, "application/json");
  EXPECT_TRUE(exchange_.has_ended);
  Tick(absl::Hours(1));
  EXPECT_THAT(exchange_.body, HasSubstr("queue_full"));
  EXPECT_EQ(exchange_.body.back(), '}');
}

TEST_F(EventStreamTest, RefusalAfterTheCommentIsAnEvent) {
  Tick(absl::Seconds(6));
  Run([this] { stream_->Finish(absl::ResourceExhaustedError("queue: full")); });
  EXPECT_EQ(exchange_.http_status, 200);
  EXPECT_EQ(exchange_.body, ":\n\ndata: queue: full");
  EXPECT_TRUE(exchange_.has_ended);
}

TEST_F(EventStreamTest, StreamThatIsGoneIsNotCalled) {
  Run([this] { call_.reset(); });
  Tick(absl::Hours(1));
  EXPECT_EQ(exchange_.http_status, 0);
  EXPECT_EQ(exchange_.body, "");
}

}  // namespace
}  // namespace lowkey

#include "server/trace/otlp_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/synchronization/notification.h"
#include "tests/server/trace/fake_collector.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TracedRequest Ended(const std::string& method = "Generate") {
  TracedRequest request;
  request.trace = StartTrace(std::nullopt, 1);
  request.method = method;
  request.start = absl::FromUnixSeconds(1);
  request.end = absl::FromUnixSeconds(2);
  return request;
}

class OtlpExporterTest : public ::testing::Test {
 protected:
  // A collector that always gives the same answer.
  void Collect(const std::string& answer) {
    Collect([answer](size_t) { return answer; });
  }
  void Collect(FakeCollector::Answer answer) {
    collector_ = std::make_unique<FakeCollector>(std::move(answer));
    options_.url = collector_->url();
  }

  void Start() { exporter_ = std::make_unique<OtlpExporter>(options_); }

  // Waits until so many spans have met their fate.
  bool AwaitSettled(int64_t n) const {
    for (int i = 0; i < 2000; ++i) {
      if (exporter_->n_exported() + exporter_->n_dropped() >= n) return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  }

  static OtlpOptions Hasty() {
    OtlpOptions options;
    options.batch_time = absl::Milliseconds(10);
    options.first_retry = absl::Milliseconds(10);
    options.longest_retry = absl::Milliseconds(40);
    options.post_timeout = absl::Seconds(10);
    options.last_flush = absl::Milliseconds(200);
    return options;
  }

  OtlpOptions options_ = Hasty();
  std::unique_ptr<FakeCollector> collector_;
  std::unique_ptr<OtlpExporter> exporter_;
};

TEST_F(OtlpExporterTest, PostsTheSpansOfARequestAsJson) {
  Collect(FakeCollector::Answered(200));
  Start();
  exporter_->Add(Ended());
  ASSERT_TRUE(AwaitSettled(1));
  EXPECT_EQ(exporter_->n_exported(), 1);
  const FakeCollector::Post post = collector_->post(0);
  EXPECT_THAT(post.head, HasSubstr("POST /v1/traces HTTP/1.1\r\n"));
  EXPECT_THAT(post.head, HasSubstr("\r\nContent-Type: application/json"));
  const auto json = nlohmann::json::parse(post.body);
  EXPECT_EQ(json["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"], "Generate");
}

TEST_F(OtlpExporterTest, RequestsThatComeTogetherAreOneMessage) {
  options_.batch_time = absl::Seconds(20);
  options_.max_batch = 3;
  Collect(FakeCollector::Answered(200));
  Start();
  for (int i = 0; i < 3; ++i) exporter_->Add(Ended());
  ASSERT_TRUE(AwaitSettled(3));
  EXPECT_EQ(collector_->n_posts(), 1u);
}

TEST_F(OtlpExporterTest, WhatIsNotSampledIsNotSent) {
  Collect(FakeCollector::Answered(200));
  Start();
  TracedRequest request = Ended("silent");
  request.trace.is_sampled = false;
  exporter_->Add(std::move(request));
  exporter_->Add(Ended());
  ASSERT_TRUE(AwaitSettled(1));
  exporter_.reset();
  ASSERT_EQ(collector_->n_posts(), 1u);
  EXPECT_THAT(collector_->post(0).body, ::testing::Not(HasSubstr("silent")));
}

TEST_F(OtlpExporterTest, AnErrorThatIsForGoodDropsTheSpansAndIsLoggedOnce) {
  std::vector<std::string> lines;  // of the exporter's thread, read once it has ended
  options_.log = [&lines](const std::string& line) { lines.push_back(line); };
  Collect(FakeCollector::Answered(500, "<html>"));
  Start();
  for (int i = 0; i < 3; ++i) {
    exporter_->Add(Ended());
    ASSERT_TRUE(AwaitSettled(i + 1));
  }
  EXPECT_EQ(exporter_->n_dropped(), 3);
  EXPECT_EQ(exporter_->n_exported(), 0);
  EXPECT_EQ(collector_->n_posts(), 3u);
  exporter_.reset();
  EXPECT_THAT(lines, ElementsAre(HasSubstr("HTTP status 500")));
}

TEST_F(OtlpExporterTest, SendsAgainWhatTheCollectorMayTakeLater) {
  std::vector<std::string> lines;
  options_.log = [&lines](const std::string& line) { lines.push_back(line); };
  Collect([](size_t n) {
    if (n == 0) return FakeCollector::Answered(503, "busy", "Retry-After: 86400\r\n");
    if (n == 1) return std::string();  // breaks off
    if (n == 2) return std::string("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");  // within
    if (n == 3) return FakeCollector::Answered(429);
    return FakeCollector::Answered(200);
  });
  Start();
  exporter_->Add(Ended());
  ASSERT_TRUE(AwaitSettled(1));
  EXPECT_EQ(exporter_->n_exported(), 1);
  EXPECT_EQ(exporter_->n_dropped(), 0);
  EXPECT_EQ(collector_->n_posts(), 5u);
  EXPECT_EQ(collector_->post(0).body, collector_->post(4).body);
  exporter_.reset();
  EXPECT_THAT(lines, ElementsAre(HasSubstr("HTTP status 503"), HasSubstr("takes spans again")));
}

TEST_F(OtlpExporterTest, GivesUpInTheEnd) {
  options_.retry_time = absl::Milliseconds(100);
  Collect(FakeCollector::Answered(503));
  Start();
  exporter_->Add(Ended());
  ASSERT_TRUE(AwaitSettled(1));
  EXPECT_EQ(exporter_->n_dropped(), 1);
  EXPECT_GE(collector_->n_posts(), 2u);
}

TEST_F(OtlpExporterTest, SpansThatAnAnswerRejectsAreDropped) {
  for (const auto& [body, n_rejected] : std::initializer_list<std::pair<const char*, int>>{
           {R"({"partialSuccess": {"rejectedSpans": "1", "errorMessage": "no"}})", 1},
           {R"({"partialSuccess": {"rejectedSpans": 1}})", 1},
           {R"({"partialSuccess": {"rejectedSpans": "999"}})", 1},
           {R"({"partialSuccess": {"rejectedSpans": -5}})", 0},
           {R"({"partialSuccess": {"rejectedSpans": "x"}})", 0},
           {R"({"partialSuccess": []})", 0},
           {"", 0},
           {"[1", 0}}) {
    Collect(FakeCollector::Answered(200, body));
    Start();
    exporter_->Add(Ended());
    ASSERT_TRUE(AwaitSettled(1));
    EXPECT_EQ(exporter_->n_dropped(), n_rejected) << body;
    EXPECT_EQ(exporter_->n_exported(), 1 - n_rejected) << body;
  }
}

TEST_F(OtlpExporterTest, ASlowCollectorDelaysNobodyAndWhatFindsNoRoomIsCounted) {
  // The collector outlives this function.
  const auto release = std::make_shared<absl::Notification>();
  Collect([release](size_t) {
    release->WaitForNotification();
    return FakeCollector::Answered(200);
  });
  options_.max_queued = 10;
  options_.max_batch = 1;
  Start();
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 1000; ++i) exporter_->Add(Ended());
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  // One may be on its way already.
  EXPECT_GE(exporter_->n_dropped(), 989);
  release->Notify();
  EXPECT_TRUE(AwaitSettled(1000));
  EXPECT_GE(exporter_->n_exported(), 10);
  EXPECT_EQ(exporter_->n_exported() + exporter_->n_dropped(), 1000);
}

TEST_F(OtlpExporterTest, AnAnswerThatTakesTooLongIsGivenUp) {
  // The collector outlives this function.
  const auto release = std::make_shared<absl::Notification>();
  Collect([release](size_t n) {
    if (n == 0) release->WaitForNotification();
    return FakeCollector::Answered(200);
  });
  options_.post_timeout = absl::Milliseconds(100);
  options_.retry_time = absl::ZeroDuration();
  Start();
  exporter_->Add(Ended());
  ASSERT_TRUE(AwaitSettled(1));
  EXPECT_EQ(exporter_->n_dropped(), 1);
  release->Notify();
}

TEST_F(OtlpExporterTest, AnEndlessAnswerIsCutOff) {
  Collect(FakeCollector::Answered(200, std::string(kMaxPostAnswerBytes + 1, ' ')));
  options_.retry_time = absl::ZeroDuration();
  Start();
  exporter_->Add(Ended());
  ASSERT_TRUE(AwaitSettled(1));
  EXPECT_EQ(exporter_->n_dropped(), 1);
}

TEST_F(OtlpExporterTest, NobodyThereIsADrop) {
  options_.url = "http://127.0.0.1:1/v1/traces";
  options_.retry_time = absl::ZeroDuration();
  Start();
  exporter_->Add(Ended());
  ASSERT_TRUE(AwaitSettled(1));
  EXPECT_EQ(exporter_->n_dropped(), 1);
}

TEST_F(OtlpExporterTest, TheEndSendsWhatIsQueued) {
  options_.batch_time = absl::Hours(1);
  options_.last_flush = absl::Seconds(20);
  Collect(FakeCollector::Answered(200));
  Start();
  exporter_->Add(Ended());
  exporter_.reset();
  EXPECT_EQ(collector_->n_posts(), 1u);
}

TEST_F(OtlpExporterTest, TheEndDoesNotWaitForACollectorThatDoesNotAnswer) {
  // The collector outlives this function.
  const auto release = std::make_shared<absl::Notification>();
  Collect([release](size_t) {
    release->WaitForNotification();
    return std::string();
  });
  options_.post_timeout = absl::Seconds(60);
  Start();
  exporter_->Add(Ended());
  absl::SleepFor(absl::Milliseconds(100));
  const absl::Time begin = absl::Now();
  exporter_.reset();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
  release->Notify();
}

TEST(OtlpTracesUrlTest, AnEndpointWithoutAPathGetsTheirs) {
  EXPECT_EQ(OtlpTracesUrl("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
  EXPECT_EQ(OtlpTracesUrl("https://collector/"), "https://collector/v1/traces");
  EXPECT_EQ(OtlpTracesUrl("http://[::1]:4318/api/otlp"), "http://[::1]:4318/api/otlp");
  for (const char* endpoint :
       {"", "127.0.0.1:4318", "http://", "http:///v1", "ftp://a", "file:///x", "http://a b",
        "http://a\n", "http://user@a", "http://a?q", "HTTP://a", "http://a#f", "http://\xc3\xa9"}) {
    EXPECT_FALSE(OtlpTracesUrl(endpoint).has_value()) << endpoint;
  }
}

}  // namespace
}  // namespace lowkey

#include "server/hub/web.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/retry_after.h"
#include "tests/server/hub/fake_hub.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

struct Collected : WebSink {
  absl::Status Begin(const WebAnswer& answer) override {
    ++n_begins;
    status = answer.status;
    return begin;
  }
  absl::Status Take(std::string_view bytes) override {
    text.append(bytes);
    return take;
  }
  int n_begins = 0;
  long status = 0;
  std::string text;
  absl::Status begin, take;
};

class WebTest : public ::testing::Test {
 protected:
  absl::Status Get(const std::string& path, int64_t first_byte = 0) {
    Web web(settings_, [this] { return is_stopped_; });
    return web.Get(hub_.endpoint() + path, first_byte, sink_);
  }
  void AnswerWith(const std::string& bytes) {
    hub_.SetScript([bytes](const HubRequest&, int) { return HubAnswer{bytes}; });
  }
  // Redirects /from as told, and answers everything else with its Authorization.
  void RedirectTo(const std::string& location) {
    hub_.SetScript([location](const HubRequest& request, int) {
      if (request.path != "/from") return HubAnswer{Answer(200, request.Field("authorization"))};
      return HubAnswer{Answer(302, "moved", "Location: " + location + "\r\n")};
    });
  }

  FakeHub hub_;
  HubSettings settings_ = hub_.Settings("/nowhere");
  Collected sink_;
  bool is_stopped_ = false;
};

TEST_F(WebTest, GetsABody) {
  AnswerWith(Answer(200, "hello"));
  EXPECT_TRUE(Get("/x").ok());
  EXPECT_EQ(sink_.text, "hello");
  EXPECT_EQ(hub_.requests()[0].Field("range"), "");
}

TEST_F(WebTest, TheHeadComesWithoutABodyToo) {
  AnswerWith(Answer(204, ""));
  EXPECT_TRUE(Get("/x").ok());
  EXPECT_EQ(sink_.n_begins, 1);
  EXPECT_EQ(sink_.status, 204);
}

TEST_F(WebTest, InterimAnswersArePassedOver) {
  AnswerWith("HTTP/1.1 103 Early\r\nContent-Range: bytes 0-1/2\r\n\r\n" + Answer(200, "hello"));
  EXPECT_TRUE(Get("/x").ok());
  EXPECT_EQ(sink_.status, 200);
}

TEST_F(WebTest, AsksForARange) {
  AnswerWith(Answer(206, "lo"));
  EXPECT_TRUE(Get("/x", 3).ok());
  EXPECT_EQ(hub_.requests()[0].Field("range"), "bytes=3-");
}

TEST_F(WebTest, TheTokenGoesToTheEndpointAlone) {
  settings_.token = "secret";
  AnswerWith(Answer(200, ""));
  EXPECT_TRUE(Get("/x").ok());
  EXPECT_EQ(hub_.requests()[0].Field("authorization"), "Bearer secret");
  FakeHub other;
  other.SetScript([](const HubRequest&, int) { return HubAnswer{Answer(200, "elsewhere")}; });
  RedirectTo(other.endpoint() + "/to");
  EXPECT_TRUE(Get("/from").ok());
  EXPECT_EQ(sink_.text, "elsewhere");
  ASSERT_EQ(other.requests().size(), 1u);
  EXPECT_EQ(other.requests()[0].Field("authorization"), "");
}

TEST_F(WebTest, TheTokenFollowsARedirectWithinTheEndpoint) {
  settings_.token = "secret";
  RedirectTo("/to");
  EXPECT_TRUE(Get("/from").ok());
  EXPECT_EQ(sink_.text, "Bearer secret");
  EXPECT_EQ(sink_.n_begins, 1);
}

TEST_F(WebTest, NoTokenGoesInClearToOtherMachines) {
  // The port is this machine's, but the name is not a loopback address's.
  settings_.token = "secret";
  settings_.endpoint = "http://hub.example";
  Web web(settings_, [] { return false; });
  AnswerWith(Answer(401, ""));
  const absl::Status status = web.Get(hub_.endpoint() + "/x", 0, sink_);
  EXPECT_TRUE(absl::IsUnauthenticated(status));
  EXPECT_EQ(hub_.requests()[0].Field("authorization"), "");
  EXPECT_THAT(std::string(status.message()), HasSubstr("no token goes over http"));
}

TEST_F(WebTest, FollowsFiveRedirects) {
  for (const int n_redirects : {5, 6}) {
    hub_.SetScript([n_redirects](const HubRequest& request, int) {
      const int at = std::stoi(request.path.substr(1));
      if (at == n_redirects) return HubAnswer{Answer(200, "end")};
      return HubAnswer{Answer(307, "", absl::StrCat("Location: /", at + 1, "\r\n"))};
    });
    EXPECT_EQ(Get("/0").ok(), n_redirects == 5);
  }
}

TEST_F(WebTest, ALoopOfRedirectsEnds) {
  RedirectTo("/from");
  const absl::Status status = Get("/from");
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 5 redirects"));
  EXPECT_EQ(hub_.requests().size(), 6u);
}

TEST_F(WebTest, RedirectsElsewhereAreRefused) {
  for (const std::string location : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x", "",
                                     "http://user:word@127.0.0.1/x", "ldap://127.0.0.1"}) {
    RedirectTo(location);
    EXPECT_TRUE(absl::IsFailedPrecondition(Get("/from"))) << location;
  }
  settings_.endpoint = "https://hub.example";
  RedirectTo(hub_.endpoint() + "/to");
  const absl::Status status = Get("/from");
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected https"));
  EXPECT_EQ(sink_.n_begins, 0);
}

TEST_F(WebTest, StatusesHaveTheirCodes) {
  const std::pair<int, absl::StatusCode> kCodes[] = {
      {400, absl::StatusCode::kFailedPrecondition}, {401, absl::StatusCode::kUnauthenticated},
      {403, absl::StatusCode::kPermissionDenied},   {404, absl::StatusCode::kNotFound},
      {408, absl::StatusCode::kUnavailable},        {416, absl::StatusCode::kOutOfRange},
      {429, absl::StatusCode::kUnavailable},        {500, absl::StatusCode::kUnavailable},
      {503, absl::StatusCode::kUnavailable},        {304, absl::StatusCode::kFailedPrecondition},
  };
  for (const auto& [status, code] : kCodes) {
    AnswerWith(Answer(status, status == 304 ? "" : "body"));
    EXPECT_EQ(Get("/x").code(), code) << status;
  }
  EXPECT_EQ(sink_.n_begins, 0);
}

TEST_F(WebTest, RefusalsSayWhatTheHubSays) {
  AnswerWith(Answer(403, "", "X-Error-Message: Access \x1b[31mis restricted\r\n"));
  EXPECT_THAT(std::string(Get("/x").message()), HasSubstr("Access ?[31mis restricted"));
  AnswerWith(Answer(429, "", "Retry-After: 7\r\n"));
  EXPECT_EQ(RetryAfterOf(Get("/x")), absl::Seconds(7));
  for (const std::string after : {"-1", "1e9", "99999999999999999999", "tomorrow", "0"}) {
    AnswerWith(Answer(429, "", "Retry-After: " + after + "\r\n"));
    EXPECT_LE(RetryAfterOf(Get("/x")).value_or(absl::ZeroDuration()), absl::Seconds(1)) << after;
  }
}

TEST_F(WebTest, BrokenAnswersAreWorthAnotherTry) {
  const std::string whole = Answer(200, "hello");
  for (size_t n = 0; n < whole.size(); ++n) {
    AnswerWith(whole.substr(0, n));
    EXPECT_TRUE(absl::IsUnavailable(Get("/x"))) << n;
  }
  for (const std::string bytes :
       {"nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"}) {
    AnswerWith(bytes);
    EXPECT_TRUE(absl::IsUnavailable(Get("/x"))) << bytes;
  }
}

TEST_F(WebTest, ResetsAreWorthAnotherTry) {
  hub_.SetScript(
      [](const HubRequest&, int) { return HubAnswer{.bytes = "HTTP/1.1", .resets = true}; });
  EXPECT_TRUE(absl::IsUnavailable(Get("/x")));
}

TEST_F(WebTest, AHubThatIsNotThereIsWorthAnotherTry) {
  Web web(settings_, [] { return false; });
  EXPECT_TRUE(absl::IsUnavailable(web.Get("http://127.0.0.1:1/x", 0, sink_)));
}

TEST_F(WebTest, AStallEnds) {
  settings_.stall_timeout = absl::Seconds(1);
  hub_.SetScript([](const HubRequest&, int) {
    return HubAnswer{.bytes = Answer(200, "hello").substr(0, 40), .stays_open = true};
  });
  EXPECT_TRUE(absl::IsUnavailable(Get("/x")));
}

TEST_F(WebTest, AStopEndsAStall) {
  hub_.SetScript([this](const HubRequest&, int) {
    is_stopped_ = true;
    return HubAnswer{.stays_open = true};
  });
  settings_.stall_timeout = absl::Seconds(60);
  EXPECT_TRUE(absl::IsCancelled(Get("/x")));
}

TEST_F(WebTest, EndlessHeadsAndRefusalsEnd) {
  hub_.SetScript([](const HubRequest&, int) {
    return HubAnswer{.bytes = "HTTP/1.1 200 OK\r\n", .endless = "X: yyyyyyyyyyyyyyyyyyyyyyyyy\r\n"};
  });
  EXPECT_THAT(std::string(Get("/x").message()), HasSubstr("head is over"));
  hub_.SetScript([](const HubRequest&, int) {
    return HubAnswer{.bytes = "HTTP/1.1 302 OK\r\nLocation: /y\r\n\r\n",
                     .endless = std::string(4096, 'z')};
  });
  EXPECT_THAT(std::string(Get("/x").message()), HasSubstr("endless"));
}

TEST_F(WebTest, TheSinkCanEndATransfer) {
  AnswerWith(Answer(200, "hello"));
  sink_.take = absl::DataLossError("wrong");
  EXPECT_EQ(Get("/x").message(), "wrong");
  sink_.begin = absl::DataLossError("wrong head");
  EXPECT_EQ(Get("/x").message(), "wrong head");
}

TEST_F(WebTest, AuthoritiesThatAreNoFileAreAFinalError) {
  settings_.authorities = "/nowhere.pem";
  Web web(settings_, [] { return false; });
  const absl::Status status = web.Get("https" + hub_.endpoint().substr(4) + "/x", 0, sink_);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
}

}  // namespace
}  // namespace lowkey

#ifndef LOWKEY_TESTS_SERVER_HTTP_H1_SESSION_TESTING_H_
#define LOWKEY_TESTS_SERVER_HTTP_H1_SESSION_TESTING_H_

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "server/http/session.h"

namespace lowkey {

inline constexpr size_t kAll = std::numeric_limits<size_t>::max();
inline constexpr std::string_view kGet = "GET /g HTTP/1.1\r\nHost: h\r\n\r\n";
// Of the fixture's clock at first.
inline constexpr std::string_view kDate = "Date: Mon, 05 Jan 2026 10:20:30 GMT\r\n";

// What handlers do, and what was done to them: "head /p", "body abc", "end", "sent", "gone".
struct Script {
  std::function<void(HttpExchange&)> on_head = [](HttpExchange&) {};
  std::function<void(HttpExchange&, std::string_view)> on_body = [](HttpExchange&,
                                                                    std::string_view) {};
  std::function<void(HttpExchange&)> on_end = [](HttpExchange&) {};
  std::function<void(HttpExchange&)> on_sent = [](HttpExchange&) {};
  std::vector<std::string> log = {};
  HttpExchange* exchange = nullptr;  // of the last handler
};

class ScriptedHandler : public HttpHandler {
 public:
  ScriptedHandler(HttpExchange& exchange, Script& script) : exchange_(exchange), script_(script) {
    script_.exchange = &exchange;
  }
  ~ScriptedHandler() override {
    EXPECT_FALSE(is_called_) << "destroyed within a call";
    script_.log.push_back("gone");
    script_.exchange = nullptr;
  }
  void OnHead() override {
    is_called_ = true;
    script_.log.push_back("head " + exchange_.head().path);
    script_.on_head(exchange_);
    is_called_ = false;
  }
  void OnBody(std::string_view bytes) override {
    is_called_ = true;
    if (!script_.log.empty() && script_.log.back().substr(0, 5) == "body ") {
      script_.log.back() += bytes;
    } else {
      script_.log.push_back("body " + std::string(bytes));
    }
    script_.on_body(exchange_, bytes);
    is_called_ = false;
  }
  void OnBodyEnd() override {
    is_called_ = true;
    script_.log.push_back("end");
    script_.on_end(exchange_);
    is_called_ = false;
  }
  void OnSent() override {
    is_called_ = true;
    script_.on_sent(exchange_);
    is_called_ = false;
  }

 private:
  HttpExchange& exchange_;
  Script& script_;
  bool is_called_ = false;
};

class Http1SessionTest : public ::testing::Test, public HttpSessionHost {
 protected:
  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange) override {
    return std::make_unique<ScriptedHandler>(exchange, script_);
  }
  void WantsFlush() override { ++n_flushes_; }
  void CountRefusal(NetworkRefusal reason) override { refusals_.push_back(reason); }

  HttpSession& session() {
    if (session_ == nullptr) session_ = MakeHttp1Session(*this, limits_, budgets_, now_);
    return *session_;
  }
  // Everything that is produced now.
  std::string Out(size_t max_bytes = kAll) {
    std::string out;
    session().Produce(max_bytes, out, now_);
    return out;
  }
  // What is produced after these bytes.
  std::string Ask(std::string_view bytes) {
    session().Receive(bytes, now_);
    return Out();
  }
  void Pass(absl::Duration time) {
    HttpSession& begun = session();
    now_ += time;
    begun.OnTick(now_);
  }
  // Makes handlers answer whole requests, with their path.
  void AnswerWithPath() {
    script_.on_end = [](HttpExchange& exchange) {
      exchange.Start(200, {});
      exchange.Write(exchange.head().path);
      exchange.End({});
    };
  }
  void AllowAll() {
    script_.on_head = [](HttpExchange& exchange) { exchange.AllowBody(kAll); };
  }

  Script script_;
  HttpLimits limits_;
  HttpBudgets budgets_{.answers = ByteBudget(1 << 30)};
  absl::Time now_ = absl::FromCivil(absl::CivilSecond(2026, 1, 5, 10, 20, 30), absl::UTCTimeZone());
  int n_flushes_ = 0;
  std::vector<NetworkRefusal> refusals_;
  std::unique_ptr<HttpSession> session_;  // last: its end calls the rest
};

inline std::string Post(std::string_view fields, std::string_view body,
                        std::string_view version = "1.1") {
  return absl::StrCat("POST /p HTTP/", std::string(version), "\r\nHost: h\r\n", std::string(fields),
                      "\r\n", std::string(body));
}
inline std::string LongPost(size_t n_bytes) {
  return Post(absl::StrCat("Content-Length: ", n_bytes, "\r\n"), "");
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_HTTP_H1_SESSION_TESTING_H_

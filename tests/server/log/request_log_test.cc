#include "server/log/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/server/request_log_text.h"

namespace lowkey {
namespace {

TEST(RequestLogTest, LineOfAFinishedRequestIsOneJsonObject) {
  GenerationResult result;
  result.request_id = "r\"1\n";
  result.model = "tales";
  result.engine.n_prompt_tokens = 3;
  result.engine.attention.mechanism = Mechanism::kAtp;
  result.engine.attention.rank = 64;
  result.engine.n_drafted_tokens = 4;
  result.engine.n_accepted_tokens = 3;
  result.choices = {{FinishReason::kLength, {}, 5}, {FinishReason::kStopToken, {}, 2}};
  RequestLogEntry entry = {"Generate", "", absl::OkStatus(), absl::Milliseconds(2), result};
  entry.ended = absl::UnixEpoch();
  const std::string line = RequestLogLine(entry);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(json["request_id"], "r\"1\n");
  EXPECT_EQ(json["generated_tokens"], 7);
  EXPECT_EQ(json["drafted_tokens"], 4);
  EXPECT_EQ(json["accepted_tokens"], 3);
  EXPECT_EQ(json["finish"], nlohmann::json({"length", "stop_token"}));
  EXPECT_EQ(json["rank"], 64);
  EXPECT_FALSE(json.contains("tenant")) << "there are none";
  EXPECT_EQ(json["duration_us"], 2000);
}

TEST(RequestLogTest, RefusedRequestHasItsErrorAndNoResult) {
  const std::string line = RequestLogLine(
      {"Score", "ours", absl::InvalidArgumentError("n: 9"), absl::ZeroDuration(), std::nullopt});
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["status"], "INVALID_ARGUMENT");
  EXPECT_EQ(json["message"], "n: 9");
  EXPECT_EQ(json["tenant"], "ours");
  EXPECT_FALSE(json.contains("request_id"));
}

TEST(RequestLogTest, BytesThatAreNotUtf8DoNotStopTheLog) {
  GenerationResult result;
  result.request_id = "\xff";
  const std::string line =
      RequestLogLine({"Generate", "", absl::OkStatus(), absl::ZeroDuration(), result});
  EXPECT_TRUE(nlohmann::json::accept(line));
}

TEST(RequestLogTest, MethodThatACallerMadeUpIsCut) {
  const std::string line =
      RequestLogLine({std::string(100000, 'x'), "", absl::UnauthenticatedError("m"),
                      absl::ZeroDuration(), std::nullopt});
  EXPECT_LT(line.size(), 400u);
}

std::string LoggedMessage(const std::string& message) {
  return nlohmann::json::parse(RequestLogLine(
      {"Generate", "", absl::InvalidArgumentError(message), {}, std::nullopt}))["message"];
}

TEST(RequestLogTest, LeavesOutWhatMessagesQuote) {
  EXPECT_EQ(LoggedMessage(R"(model: "a "secret"" is not served, expected "tales")"),
            R"(model: "...")");
  EXPECT_EQ(LoggedMessage("chat: the template says: a secret"), "chat: refused");
  EXPECT_EQ(LoggedMessage("n: 9, expected 1..8"), "n: 9, expected 1..8");
}

TEST(RequestLogTest, LinesAreShort) {
  GenerationResult result;
  result.request_id = std::string(128, '\1');
  result.model = std::string(255, '\1');
  const std::string line = RequestLogLine({std::string(128, '\1'), std::string(64, 'x'),
                                           absl::InternalError(std::string(100000, '\1')),
                                           absl::ZeroDuration(), result});
  EXPECT_LT(line.size(), LineLog::kMaxLineBytes);
  EXPECT_EQ(nlohmann::json::parse(line)["status"], "INTERNAL");
}

TEST(RequestLogTest, TheTraceIsNamedWhereThereIsOne) {
  RequestLogEntry entry = {"Generate", "", absl::OkStatus(), absl::ZeroDuration(), std::nullopt};
  EXPECT_FALSE(nlohmann::json::parse(RequestLogLine(entry)).contains("trace_id"));
  const std::string line = RequestLogLine(entry, TraceId{0xab});
  EXPECT_EQ(nlohmann::json::parse(line)["trace_id"], "ab" + std::string(30, '0'));
}

TEST(RequestLogTest, WithoutLinesAndSpansNothingIsWritten) {
  RequestLog log(nullptr, nullptr);
  log.Write({"Generate", "", absl::OkStatus(), absl::ZeroDuration(), std::nullopt});
  log.WriteWithoutSpan({"Generate", "", absl::OkStatus(), absl::ZeroDuration(), std::nullopt});
}

TEST(RequestLogTest, WritesOneLinePerEntry) {
  RequestLogText text;
  for (int i = 0; i < 2; ++i) {
    text.log()->Write({"Generate", "", absl::OkStatus(), absl::ZeroDuration(), std::nullopt});
  }
  const std::string lines = text.Text();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
}

}  // namespace
}  // namespace lowkey

// The real `lowkey serve` as those see it who watch it: the metrics that the dashboard and the
// alerts name, and the traces that a collector gets.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "tests/integration/child_process.h"
#include "tests/server/front/http_get.h"
#include "tests/server/trace/fake_collector.h"
#include "tests/testing/certificates.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Labels that Prometheus adds, or that belong to its form of histograms.
const std::set<std::string> kForeignLabels = {"instance", "job", "le"};

// Returns the expressions of every panel and variable of the dashboard.
std::vector<std::string> DashboardExpressions(const json& dashboard) {
  std::vector<std::string> expressions;
  for (const json& panel : dashboard["panels"]) {
    for (const json& target : panel.value("targets", json::array())) {
      expressions.push_back(target["expr"]);
    }
  }
  for (const json& variable : dashboard["templating"]["list"]) {
    if (variable["type"] == "query") expressions.push_back(variable["definition"]);
  }
  return expressions;
}

// Returns what follows each "expr:" of the alerts, lines of the same block included.
std::vector<std::string> RuleExpressions(const std::string& yaml) {
  std::vector<std::string> expressions;
  bool is_within = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(yaml, '\n'))) {
    if (const size_t at = line.find(" expr: "); at != std::string::npos) {
      expressions.push_back(line.substr(at + 7));
      is_within = true;
    } else if (line.starts_with("          ") && is_within) {
      expressions.back() += " " + line;
    } else {
      is_within = false;
    }
  }
  return expressions;
}

// Checks that `page` has the metrics of an expression, with the labels that it selects and sums by.
void ExpectExported(const std::string& expression, const std::string& page) {
  SCOPED_TRACE(expression);
  static const std::regex kMetric(R"re(\b((?:vllm|lowkey):[a-z0-9_]+)(\{[^}]*\})?)re"),
      kMatcher(R"re(([a-z_]+)(?:=~|!~|!=|=)")re"), kBy(R"re(by \(([a-z_, ]+)\))re");
  std::string samples;  // of the expression's metrics
  for (std::sregex_iterator it(expression.begin(), expression.end(), kMetric), end; it != end;
       ++it) {
    const std::string name = (*it)[1], matchers = (*it)[2];
    std::string own;
    for (const absl::string_view line : absl::StrSplit(page, '\n')) {
      if (absl::StartsWith(line, name + "{")) absl::StrAppend(&own, line, "\n");
    }
    EXPECT_NE(own, "") << name << " is not exported";
    for (std::sregex_iterator m(matchers.begin(), matchers.end(), kMatcher); m != end; ++m) {
      const std::string label = (*m)[1];
      if (kForeignLabels.contains(label)) continue;
      EXPECT_THAT(own, HasSubstr(label + "=\""));
    }
    samples += own;
  }
  for (std::sregex_iterator it(expression.begin(), expression.end(), kBy), end; it != end; ++it) {
    const std::vector<std::string> labels = absl::StrSplit((*it)[1].str(), ", ");
    for (const std::string& label : labels) {
      if (kForeignLabels.contains(label)) continue;
      EXPECT_THAT(samples, HasSubstr(label + "=\""));
    }
  }
}

class ObservabilityTest : public ::testing::Test {
 protected:
  void Serve(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        LOWKEY_BINARY, "serve",     "--model",    SourcePath("models/tales"),
        "--port",      "0",         "--json",     "--threads",
        "1",           "--profile", "none",       "--cache-bytes",
        "64M",         "--metrics", "127.0.0.1:0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_ = std::make_unique<ChildProcess>(arguments);
    ASSERT_TRUE(server_->WaitForOutput("\n")) << server_->errors();
    ready_ = json::parse(server_->output());
  }

  std::string Page() const { return HttpGet(ready_["metrics_port"], "/metrics").text; }

  // Ends the server, which then has sent its spans and written its log.
  void Stop() {
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
  }

  grpc::Status Generate(const std::map<std::string, std::string>& metadata, int n = 1) {
    const auto stub = v1::Generation::NewStub(grpc::CreateChannel(
        ready_["address"].get<std::string>(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    for (const auto& [name, value] : metadata) context.AddMetadata(name, value);
    v1::GenerateRequest request;
    request.set_text("Once upon a time");
    request.set_max_new_tokens(5);
    request.set_n(n);
    v1::GenerateResponse response;
    return stub->Generate(&context, request, &response);
  }

  const TempDirectory directory_;
  std::unique_ptr<ChildProcess> server_;
  json ready_;
};

TEST_F(ObservabilityTest, EveryMetricOfTheDashboardAndTheAlertsIsExported) {
  const TestAuthority authority("authority");
  const TestAuthority::Issued server = authority.Issue("server");
  WriteFileOrDie(directory_.File("ca"), authority.certificate());
  WriteFileOrDie(directory_.File("cert"), server.certificate);
  WriteFileOrDie(directory_.File("key"), server.key);
  Serve({"--otlp", "http://127.0.0.1:1", "--tls-cert", directory_.File("cert"), "--tls-key",
         directory_.File("key")});
  ChildProcess client({LOWKEY_BINARY, "generate", "--server",
                       absl::StrCat("localhost:", ready_["port"].get<int>()), "--tls-ca",
                       directory_.File("ca"), "--max-new-tokens", "3", "Once"});
  ASSERT_EQ(client.Wait(), 0) << client.errors();
  // The counts of answers follow the answers.
  std::string page;
  for (int i = 0; i < 500 && page.find("code=\"OK\"") == std::string::npos; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    page = Page();
  }
  EXPECT_THAT(page, HasSubstr("\nlowkey:http_requests_total{model_name=\"tales\",api=\"grpc\","
                              "code=\"OK\"} 1\n"));
  const json dashboard = json::parse(ReadFileOrDie(SourcePath("deploy/grafana/lowkey.json")));
  const std::vector<std::string> in_dashboard = DashboardExpressions(dashboard);
  EXPECT_GT(in_dashboard.size(), 50u);
  for (const std::string& expression : in_dashboard) ExpectExported(expression, page);
  const auto rules = RuleExpressions(ReadFileOrDie(SourcePath("deploy/prometheus/rules.yml")));
  EXPECT_GT(rules.size(), 10u);
  for (const std::string& expression : rules) ExpectExported(expression, page);
}

// Grafana shows an empty panel for what it does not know.
TEST_F(ObservabilityTest, PanelsAreOnesThatGrafanaDraws) {
  const json dashboard = json::parse(ReadFileOrDie(SourcePath("deploy/grafana/lowkey.json")));
  EXPECT_GE(dashboard["schemaVersion"], 36);
  EXPECT_TRUE(dashboard["id"].is_null()) << "Grafana gives it";
  std::set<int> ids;
  std::set<std::string> titles;
  const std::set<std::string> kTypes = {"row", "stat", "table", "timeseries"};
  for (const json& panel : dashboard["panels"]) {
    const std::string title = panel["title"];
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << title;
    EXPECT_TRUE(titles.insert(title).second) << title;
    EXPECT_TRUE(kTypes.contains(panel["type"])) << title;
    const json& place = panel["gridPos"];
    EXPECT_LE(place["x"].get<int>() + place["w"].get<int>(), 24) << title;
    if (panel["type"] == "row") continue;
    EXPECT_NE(panel["description"].get<std::string>(), "") << title;
    EXPECT_EQ(panel["datasource"]["uid"], "${datasource}") << title;
    std::set<std::string> names;
    for (const json& target : panel["targets"]) {
      EXPECT_TRUE(names.insert(target["refId"].get<std::string>()).second) << title;
    }
  }
}

constexpr char kTraceId[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSampled[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kUnsampled[] = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

// Returns the spans of every message that the collector got, by name.
std::multimap<std::string, json> SpansOf(const FakeCollector& collector) {
  std::multimap<std::string, json> spans;
  for (size_t i = 0; i < collector.n_posts(); ++i) {
    const json message = json::parse(collector.post(i).body);
    for (const json& span : message["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
      spans.emplace(span["name"], span);
    }
  }
  return spans;
}

TEST_F(ObservabilityTest, ACallersTraceGoesOnInTheLogAndInTheSpans) {
  FakeCollector collector([](size_t) { return FakeCollector::Answered(200); });
  Serve({"--otlp", collector.url(), "--log-requests"});
  ASSERT_TRUE(Generate({{"traceparent", kSampled}, {"tracestate", "vendor=x"}}).ok());
  ASSERT_TRUE(Generate({{"traceparent", kUnsampled}}).ok());
  Stop();
  const auto spans = SpansOf(collector);
  ASSERT_EQ(spans.size(), 4u) << "the trace that is not sampled has no spans";
  const json server = spans.find("Generate")->second;
  EXPECT_EQ(server["traceId"], kTraceId);
  EXPECT_EQ(server["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(server["traceState"], "vendor=x");
  for (const char* phase : {"queue", "prefill", "decode"}) {
    ASSERT_EQ(spans.count(phase), 1u) << phase;
    const json span = spans.find(phase)->second;
    EXPECT_EQ(span["parentSpanId"], server["spanId"]) << phase;
    EXPECT_GE(span["startTimeUnixNano"], server["startTimeUnixNano"]) << phase;
    EXPECT_LE(span["endTimeUnixNano"], server["endTimeUnixNano"]) << phase;
  }
  std::map<std::string, json> attributes;
  for (const json& attribute : server["attributes"]) {
    attributes[attribute["key"]] = attribute["value"];
  }
  EXPECT_EQ(attributes["gen_ai.request.model"]["stringValue"], "tales");
  EXPECT_EQ(attributes["gen_ai.usage.output_tokens"]["intValue"], "5");
  EXPECT_EQ(attributes["lowkey.attention.mechanism"]["stringValue"], "standard");
  EXPECT_THAT(server_->errors(), HasSubstr(absl::StrCat("\"trace_id\":\"", kTraceId, "\"")));
  EXPECT_THAT(server_->errors(), HasSubstr("\"trace_id\":\"1af7651916cd43dd8448eb211c80319c\""));
}

TEST_F(ObservabilityTest, ARequestOfNoTraceBeginsOneInTheAskedShare) {
  FakeCollector collector([](size_t) { return FakeCollector::Answered(200); });
  Serve({"--otlp", collector.url(), "--log-requests"});
  ASSERT_TRUE(Generate({}).ok());
  ASSERT_TRUE(Generate({{"traceparent", "00-zz"}}).ok());
  EXPECT_FALSE(Generate({}, /*n=*/9).ok());
  Stop();
  EXPECT_EQ(SpansOf(collector).count("Generate"), 3u);
  for (const auto& [name, span] : SpansOf(collector)) {
    if (name != "Generate") continue;
    EXPECT_FALSE(span.contains("parentSpanId"));
    EXPECT_THAT(server_->errors(), HasSubstr(span["traceId"].get<std::string>()));
  }
  const size_t n_posts = collector.n_posts();
  Serve({"--otlp", collector.url(), "--otlp-ratio", "0"});
  ASSERT_TRUE(Generate({}).ok());
  Stop();
  EXPECT_EQ(collector.n_posts(), n_posts);
}

TEST_F(ObservabilityTest, WithoutACollectorATraceIsLoggedAlone) {
  Serve({"--log-requests"});
  ASSERT_TRUE(Generate({{"traceparent", kSampled}}).ok());
  ASSERT_TRUE(Generate({}).ok());
  EXPECT_THAT(Page(), Not(HasSubstr("lowkey:spans")));
  Stop();
  const std::string& log = server_->errors();
  EXPECT_THAT(log, HasSubstr(absl::StrCat("\"trace_id\":\"", kTraceId, "\"")));
  EXPECT_EQ(log.find("trace_id"), log.rfind("trace_id")) << "the other request has none";
}

TEST_F(ObservabilityTest, ACollectorThatHangsDelaysNeitherRequestsNorTheEnd) {
  absl::Notification release;
  FakeCollector collector([&release](size_t) {
    release.WaitForNotification();
    return std::string();
  });
  Serve({"--otlp", collector.url()});
  const absl::Time begin = absl::Now();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Generate({}).ok());
  Stop();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
  release.Notify();
}

TEST_F(ObservabilityTest, BadFlagsSayWhatIsExpected) {
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--otlp", "127.0.0.1:4318"}, {"--otlp", "ftp://a"}, {"--otlp-ratio", "1.5"}}) {
    std::vector<std::string> arguments = {LOWKEY_BINARY, "serve"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    ChildProcess child(arguments);
    EXPECT_NE(child.Wait(), 0);
    EXPECT_THAT(child.errors(), HasSubstr(flags[0] + ": \"" + flags[1] + "\", expected a"));
  }
}

}  // namespace
}  // namespace lowkey

#include "client/load/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/report/page.h"

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A point of two mechanisms: requests with a prompt of 100, 200, ... tokens, and a refusal.
PointRun TwentyRequests(double slowness) {
  PointRun run;
  for (int i = 0; i < 20; ++i) {
    RequestRecord record;
    record.mix_index = static_cast<size_t>(i % 2);
    record.n_prompt_tokens = 100 * (i + 1);
    record.due_s = i;
    record.stream.first_token_s = i + 0.01 * slowness;
    record.stream.gaps_ms = {5, 7};
    record.stream.n_output_tokens = 3;
    record.stream.ended_s = i + 0.01 * slowness + 0.012;
    run.records.push_back(record);
  }
  run.records[4].stream.status = absl::ResourceExhaustedError("full");
  run.records[4].stream.first_token_s.reset();
  run.server = {4, 1, int64_t{3} << 20, int64_t{64} << 20};
  run.generator.cpu_cores = 0.25;
  run.generator.lags_ms = {0.125};
  return run;
}

LoadReport TwoPoints() {
  LoadReport report;
  report.settings = {{"model", "a<b"}};
  report.slo = {200, 50};
  for (const double rate : {1.0, 4.0}) {
    PointResult& point = report.points.emplace_back();
    point.rate_per_s = rate;
    Evaluate(TwentyRequests(rate), {{"standard"}, {"atp --rank 1/8"}}, report.slo, point);
  }
  report.prompt_times = TimesByPrompt(TwentyRequests(1));
  return report;
}

TEST(ReportTest, PointsAreNamedByTheirLoad) {
  PointResult point;
  EXPECT_EQ(PointLabel(point), "trace");
  point.concurrency = 8;
  EXPECT_EQ(PointLabel(point), "concurrency 8");
  point.rate_per_s = 0.5;
  EXPECT_EQ(PointLabel(point), "rate 0.5/s");
}

TEST(ReportTest, TextHasEveryFigureOfAPoint) {
  const LoadReport report = TwoPoints();
  const std::string text = PointText(report.points[0], report);
  for (const char* part :
       {"rate 1/s: 20 requests", "throughput", "goodput", "95% within first token 200 ms, between",
        "errors             RESOURCE_EXHAUSTED 1", "first token", "between tokens", "end to end",
        "outside the engine", "refusal", "atp --rank 1/8", "cache 3.0 of 64.0 MiB, 4 running",
        "0.25 of 1 cores", "late by 0.12 ms", "note: "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(SweepText(report.points), AllOf(HasSubstr("rate 1/s"), HasSubstr("rate 4/s")));
}

TEST(ReportTest, TextLeavesOutWhatWasNotAskedFor) {
  LoadReport report = TwoPoints();
  report.slo = {};
  PointResult& point = report.points[0];
  point.mechanisms.resize(1);
  point.server.reset();
  EXPECT_THAT(PointText(point, report),
              AllOf(Not(HasSubstr("goodput")), Not(HasSubstr("mechanism")),
                    HasSubstr("server peak        -")));
}

TEST(ReportTest, JsonIsOneLineWithUnitsInItsNames) {
  const std::string text = ReportJson(ReportDocument(TwoPoints()));
  EXPECT_THAT(text, Not(HasSubstr("\n")));
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["settings"]["model"], "a<b");
  EXPECT_EQ(json["slo"]["ttft_ms"], 200);
  ASSERT_EQ(json["points"].size(), 2u);
  const auto& point = json["points"][1];
  EXPECT_EQ(point["rate_per_s"], 4);
  EXPECT_EQ(point["requests"], 20);
  EXPECT_EQ(point["errors"]["RESOURCE_EXHAUSTED"], 1);
  EXPECT_NEAR(point["ttft_ms"]["p50"].get<double>(), 40, 1e-6);
  EXPECT_EQ(point["itl_ms"]["count"], 38);
  EXPECT_EQ(point["mechanisms"][1]["attention"], "atp --rank 1/8");
  EXPECT_EQ(point["server_peak"]["cache_bytes_used"], 3 << 20);
  EXPECT_EQ(point["generator"]["cpu_cores"], 0.25);
  EXPECT_EQ(point["generator"]["wake_late_ms"].size(), 1u) << "no value but the count of none";
  EXPECT_FALSE(point["notes"].empty());
}

TEST(ReportTest, TimesByPromptLeaveOutWarmupAndErrors) {
  PointRun run = TwentyRequests(1);
  run.records[0].is_warmup = true;
  const std::vector<PromptTimes> times = TimesByPrompt(run);
  ASSERT_EQ(times.size(), 18u);
  EXPECT_EQ(times[0].n_prompt_tokens, 200);
  EXPECT_NEAR(times[0].ttft_ms, 10, 1e-6);
  EXPECT_EQ(times[0].itl_ms, 6);
}

std::vector<std::string> Titles(const nlohmann::ordered_json& charts) {
  std::vector<std::string> titles;
  for (const auto& chart : charts) titles.push_back(chart["title"]);
  return titles;
}

TEST(ReportTest, SweepHasEveryChart) {
  const auto charts = LoadCharts(TwoPoints());
  EXPECT_THAT(Titles(charts), ElementsAre("First token against throughput", "First token by load",
                                          "Between tokens by load", "Throughput by load",
                                          "First token by prompt", "Between tokens by prompt"));
  EXPECT_EQ(charts[0]["series"][0]["labels"], nlohmann::ordered_json({"1", "4"}));
  EXPECT_EQ(charts[1]["x"]["unit"], "requests/s");
  EXPECT_EQ(charts[1]["series"].size(), 3u);
  const auto& prompts = charts[4]["series"][1];
  EXPECT_EQ(prompts["name"], "atp --rank 1/8");
  EXPECT_EQ(prompts["dots"].size(), 10u);
  EXPECT_EQ(prompts["points"].size(), 2u) << "medians of five requests each";
}

TEST(ReportTest, OnePointHasNoSweepCharts) {
  LoadReport report = TwoPoints();
  report.points.pop_back();
  EXPECT_THAT(Titles(LoadCharts(report)),
              ElementsAre("First token by prompt", "Between tokens by prompt"));
}

TEST(ReportTest, TablesHaveEveryPointSettingAndNote) {
  const auto tables = ReportDocument(TwoPoints())["tables"];
  EXPECT_THAT(Titles(tables), ElementsAre("Notes", "Sweep", "Latency", "By mechanism",
                                          "Server and generator", "Settings"));
  EXPECT_EQ(tables[0]["rows"][0][0], "rate 1/s");
  EXPECT_EQ(tables[1]["rows"].size(), 2u);
  EXPECT_EQ(tables[2]["rows"].size(), 10u);
  EXPECT_EQ(tables[3]["rows"][3][0], "rate 4/s: atp --rank 1/8");
  EXPECT_EQ(tables[5]["rows"][0], nlohmann::ordered_json({"model", "a<b"}));
}

TEST(ReportTest, ReportOfALongRunStaysSmall) {
  LoadReport report = TwoPoints();
  report.prompt_times.assign(200000, {0, 64, 10.0, 5.0});
  EXPECT_LT(ReportPage(ReportDocument(report)).size(), 300000u);
}

TEST(ReportTest, ReportOfAPointWithoutOneGoodRequestIsWhole) {
  LoadReport report;
  PointResult& point = report.points.emplace_back();
  Evaluate({}, {{"standard"}}, {}, point);
  EXPECT_THAT(ReportPage(ReportDocument(report)),
              AllOf(HasSubstr("</html>"), Not(HasSubstr("nan"))));
}

}  // namespace
}  // namespace lowkey

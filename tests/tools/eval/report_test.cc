// Tests the charts and tables of `lowkey eval --html`.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/eval/eval_report.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::ordered_json;

constexpr QualityMeasure kMeasures[] = {{"loss", "Loss", "nats", /*is_log=*/true}};

EvalRow Row(const std::string& trial, int64_t context_tokens, double loss, int64_t mib) {
  EvalRow row;
  row.trial.name = trial;
  row.context_tokens = context_tokens;
  row.cells = {CountCell("context_tokens", context_tokens, "context"),
               NumberCell("loss", loss, "loss", 2), CountCell("hidden", 7)};
  row.cost.n_tokens = 500;
  row.cost.seconds = 2;
  row.cost.cache_bytes = mib << 20;
  row.cost.read_bytes = mib << 19;
  return row;
}

std::vector<std::string> Titles(const Json& report) {
  std::vector<std::string> titles;
  for (const Json& chart : report["charts"]) titles.push_back(chart["title"]);
  return titles;
}

TEST(EvalReportTest, ALineForEachTrialAndAPointForEachContext) {
  const Json report = EvalReport("a title", kMeasures,
                                 {Row("standard", 512, 2.5, 4), Row("atp", 512, 2.75, 1),
                                  Row("standard", 1024, 2.25, 8), Row("atp", 1024, 2.5, 2)});
  EXPECT_EQ(report["title"], "a title");
  EXPECT_THAT(Titles(report),
              ElementsAre("Loss by cache", "Loss by reading", "Loss by time", "Loss by context"));
  const Json by_cache = report["charts"][0]["series"];
  EXPECT_EQ(by_cache, Json::parse(R"([
      {"name": "standard", "points": [[4.0, 2.5], [8.0, 2.25]], "labels": ["512", "1024"]},
      {"name": "atp", "points": [[1.0, 2.75], [2.0, 2.5]], "labels": ["512", "1024"]}])"));
  EXPECT_EQ(report["charts"][0]["y"], Json::parse(R"({"label": "nats", "scale": "log"})"));
  EXPECT_EQ(report["charts"][1]["series"][1]["points"], Json::parse("[[0.5, 2.75], [1.0, 2.5]]"));
  EXPECT_EQ(report["charts"][2]["series"][0]["points"], Json::parse("[[4.0, 2.5], [4.0, 2.25]]"));
  EXPECT_EQ(report["charts"][3]["series"][1],
            Json::parse(R"({"name": "atp", "points": [[512.0, 2.75], [1024.0, 2.5]]})"));
}

TEST(EvalReportTest, OneContextNeedsNeitherLabelsNorAnAxis) {
  const Json report = EvalReport("t", kMeasures, {Row("standard", 512, 2.5, 4)});
  EXPECT_THAT(Titles(report), ElementsAre("Loss by cache", "Loss by reading", "Loss by time"));
  EXPECT_EQ(report["charts"][0]["series"],
            Json::parse(R"([{"name": "standard", "points": [[4.0, 2.5]]}])"));
}

TEST(EvalReportTest, TableShowsWhatTheTerminalShowsAndResultsHoldEverything) {
  const Json report = EvalReport("t", kMeasures, {Row("standard", 512, 2.5, 4)});
  const Json& table = report["tables"][0];
  EXPECT_THAT(table["columns"],
              ElementsAre("attention", "context", "loss", "cache", "share", "tokens/s"));
  EXPECT_EQ(table["rows"][0][2], "2.50");
  EXPECT_EQ(report["results"][0]["hidden"], 7);
  EXPECT_EQ(report["results"][0]["attention"], "standard");
}

// All mechanisms may be unable to take windows of the asked length.
TEST(EvalReportTest, NothingMeasuredIsAnEmptyReport) {
  const Json report = EvalReport("t", kMeasures, {});
  EXPECT_TRUE(report["charts"][0]["series"].empty());
  EXPECT_TRUE(report["tables"][0]["rows"].empty());
}

}  // namespace
}  // namespace lowkey

#include "client/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/version.h"

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

using Json = nlohmann::ordered_json;

// The JSON inside a page.
std::string Embedded(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"report\">";
  const size_t at = page.find(begin) + begin.size();
  return page.substr(at, page.find("</script>", at) - at);
}

TEST(TableTest, TextIsAligned) {
  const ReportTable table{"t", {"name", "ms"}, {{"a", "1.5"}, {"longer", "10.25"}}};
  EXPECT_EQ(TableText(table, "  "), "  name       ms\n  a         1.5\n  longer  10.25\n");
}

TEST(NumberTest, LargeOnesAreWhole) {
  EXPECT_EQ(NumberText(0.0123456), "0.01235");
  EXPECT_EQ(NumberText(12.5), "12.5");
  EXPECT_EQ(NumberText(123456.7), "123457");
}

TEST(ReportTest, SaysWhereWhenAndOfWhichProgram) {
  const Json report = BeginReport("a title");
  EXPECT_EQ(report["title"], "a title");
  EXPECT_THAT(report["machine"].get<std::string>(), HasSubstr("cores"));
  EXPECT_EQ(report["commit"], std::string(kCommit));
  EXPECT_THAT(report["date"].get<std::string>(), MatchesRegex("[0-9-]{10} [0-9:]{5} UTC"));
}

TEST(PageTest, HoldsTheReportAndItsTables) {
  Json report = BeginReport("a & b");
  report["tables"].push_back(ReportTable{"Settings", {"name", "value"}, {{"model", "x<y"}}});
  report["more"] = {1, 2};
  const std::string page = ReportPage(report);
  EXPECT_EQ(Json::parse(Embedded(page)), report);
  EXPECT_THAT(page, AllOf(HasSubstr("<h1>a &amp; b</h1>"), HasSubstr("<td>x&lt;y</td>"),
                          HasSubstr("<noscript>"), Not(HasSubstr("@REPORT@"))));
}

TEST(PageTest, TextsAreNeitherMarkupNorScript) {
  const std::string hostile = "</script><script>alert(1)</script><!--\u2028@REPORT@ \"\\";
  Json report = BeginReport(hostile);
  report["tables"].push_back(ReportTable{hostile, {hostile, "b"}, {{hostile, "c"}}});
  report["charts"].push_back({{"title", hostile}});
  const std::string page = ReportPage(report);
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script>alert")), Not(HasSubstr("</script><!--")),
                          Not(HasSubstr("</script><script>alert"))));
  EXPECT_THAT(Embedded(page), AllOf(Not(HasSubstr("<")), Not(HasSubstr("\u2028"))));
  EXPECT_EQ(Json::parse(Embedded(page)), report);
}

TEST(PageTest, WhatIsNoNumberIsAbsent) {
  Json report = BeginReport("t");
  report["charts"].push_back({{"points", {std::numeric_limits<double>::quiet_NaN(), 1.0}}});
  EXPECT_THAT(Embedded(ReportPage(report)), HasSubstr("[null,1.0]"));
}

TEST(PageTest, NeedsNothingElse) {
  const std::string page = kPageTemplate;
  for (const char* part : {"src=", "href=", "@import", "url(", "fetch(", "eval("}) {
    EXPECT_THAT(page, Not(HasSubstr(part)));
  }
  EXPECT_LT(std::count(page.begin(), page.end(), '\n'), 300);
}

}  // namespace
}  // namespace lowkey

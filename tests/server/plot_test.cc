#include "server/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlotTest, LinearAxisBeginsAtZeroAndIsMarkedInRoundSteps) {
  const std::string svg = PlotSvg({"a", {"rate"}, {"ms"}, {{"p50", {{1, 10}, {8, 95}}}}});
  for (const char* label : {">0<", ">2<", ">4<", ">20<", ">80<"}) {
    EXPECT_THAT(svg, HasSubstr(label));
  }
  EXPECT_THAT(svg, Not(HasSubstr(">100<")));
}

TEST(PlotTest, LogarithmicAxesAreMarkedByTheirKind) {
  const std::string svg = PlotSvg({"a",
                                   {"tokens", PlotScale::kBinary},
                                   {"", PlotScale::kLogarithmic},
                                   {{"m", {{512, 0.01}, {4096, 1}}}}});
  for (const char* label : {">512<", ">1k<", ">4k<", ">0.01<", ">0.05<", ">1<"}) {
    EXPECT_THAT(svg, HasSubstr(label));
  }
  EXPECT_THAT(svg, AllOf(Not(HasSubstr(">256<")), Not(HasSubstr(">8k<"))));
}

TEST(PlotTest, ManyDecadesAreMarkedAtTheirBeginningsAlone) {
  const std::string svg =
      PlotSvg({"", {}, {"", PlotScale::kLogarithmic}, {{"", {{1, 1}, {2, 1e6}}}}});
  EXPECT_THAT(svg, AllOf(HasSubstr(">1000<"), Not(HasSubstr(">2000<"))));
}

TEST(PlotTest, LeavesOutWhatAScaleCannotShow) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string svg =
      PlotSvg({"",
               {"", PlotScale::kBinary},
               {"", PlotScale::kLogarithmic},
               {{"", {{1, nan}, {0, 1}, {2, 0}, {3, infinity}, {4, 5}, {8, 6}}}}});
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf")), HasSubstr(">5<")));
}

TEST(PlotTest, NoPointAtAllIsAnEmptyPicture) {
  for (const PlotScale scale : {PlotScale::kLinear, PlotScale::kLogarithmic, PlotScale::kBinary}) {
    const std::string svg = PlotSvg({"", {"", scale}, {"", scale}, {{"m", {}}}});
    EXPECT_THAT(svg, AllOf(HasSubstr("</svg>"), Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  }
}

TEST(PlotTest, MarksCrossoversInsideItsRangeOnly) {
  PlotSeries series{"m", {{100, 1}, {200, 2}}, {}, 150};
  EXPECT_THAT(PlotSvg({"", {"", PlotScale::kBinary}, {}, {series}}), HasSubstr("stroke-dasharray"));
  series.crossover = 500;
  EXPECT_THAT(PlotSvg({"", {"", PlotScale::kBinary}, {}, {series}}),
              Not(HasSubstr("stroke-dasharray")));
}

TEST(PlotTest, TextsAreEscapedEverywhere) {
  const std::string svg = PlotSvg({"<a>", {"<b>"}, {}, {{"", {{1, 1, "<c>"}}}}});
  for (const char* text : {"&lt;a&gt;", "&lt;b&gt;", "&lt;c&gt;"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(LegendHtml({"a<b"}), HasSubstr("a&lt;b"));
  EXPECT_THAT(HtmlPage("a&b", "<p>"), AllOf(HasSubstr("<h1>a&amp;b</h1>"), HasSubstr("<p>")));
}

}  // namespace
}  // namespace lowkey

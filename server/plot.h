#ifndef LOWKEY_SERVER_PLOT_H_
#define LOWKEY_SERVER_PLOT_H_

#include <optional>
#include <string>
#include <vector>

namespace lowkey {

// Plots as SVG, and the pages that hold them: what the commands' reports are made of.

enum class PlotScale {
  kLinear,       // from 0
  kLogarithmic,  // marked at 1, 2, 5, 10, ...
  kBinary,       // logarithmic, marked at powers of two: numbers of tokens
};

struct PlotAxis {
  std::string label = {};
  PlotScale scale = PlotScale::kLinear;
};

struct PlotPoint {
  double x = 0, y = 0;
  std::string note = {};  // shown beside the point; empty: nothing
};

struct PlotSeries {
  std::string name = {};
  std::vector<PlotPoint> points = {};    // joined by a line in this order
  std::vector<PlotPoint> dots = {};      // single marks
  std::optional<double> crossover = {};  // where a dashed vertical line stands
};

struct Plot {
  std::string title = {};
  PlotAxis x = {}, y = {};
  std::vector<PlotSeries> series = {};  // each in its own color, the same as in LegendHtml
};

// A whole SVG document of fixed size. Points that a scale cannot show (not finite, or not positive
// on a logarithmic one) are left out.
std::string PlotSvg(const Plot& plot);

// The names beside their colors.
std::string LegendHtml(const std::vector<std::string>& names);

// Text fit for between tags and in attributes.
std::string HtmlEscaped(const std::string& text);

// A self-contained page around `body`; the title is also its heading.
std::string HtmlPage(const std::string& title, const std::string& body);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_PLOT_H_

#ifndef LOWKEY_CLIENT_REPORT_PAGE_H_
#define LOWKEY_CLIENT_REPORT_PAGE_H_

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lowkey {

// A report is one JSON object, which the commands write as it is or inside a page that draws it:
//   title, machine, commit, date   texts
//   charts   {title, note, x, y, series}; an axis is {label, unit, scale: "linear" or "log", base};
//            a series is {name, points: [[x, y], ...], labels: a text or "" beside each point,
//            dots: [[x, y], ...] without a line, crossover: the x of a vertical, color: an index,
//            dash: true}. Only labels of axes, names and points are required.
//   tables   ReportTable
// A command may add fields of its own. client/report/page.html is the page.

// Cells are texts as they are shown; every row has as many as there are columns.
struct ReportTable {
  std::string title = {};
  std::vector<std::string> columns = {};
  std::vector<std::vector<std::string>> rows = {};
};
void to_json(nlohmann::ordered_json& json, const ReportTable& table);

// Returns the table without its title in aligned lines, each behind `indent`.
std::string TableText(const ReportTable& table, const std::string& indent);

// Returns a number in at least 4 digits.
std::string NumberText(double value);

// Returns a report that has its title, the name of this machine, the commit of this program and the
// current time, and empty lists of charts and tables.
nlohmann::ordered_json BeginReport(const std::string& title);

// Returns the report in one line of ASCII. Bytes that are not UTF-8 become U+FFFD.
std::string ReportJson(const nlohmann::ordered_json& report);

extern const char kPageTemplate[];  // page.html, which CMake makes a source of

// Returns a self-contained page that draws the report. Its texts cannot become markup or script.
std::string ReportPage(const nlohmann::ordered_json& report);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_REPORT_PAGE_H_

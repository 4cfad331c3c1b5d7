#include "client/report/page.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/base/clock.h"
#include "engine/base/machine.h"
#include "server/version.h"

namespace lowkey {

namespace {

using Json = nlohmann::ordered_json;

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string RowHtml(const Json& cells, const std::string& begin, const std::string& end) {
  std::string html = "<tr>";
  for (const Json& cell : cells) {
    absl::StrAppend(&html, begin, Escaped(cell.get<std::string>()), end);
  }
  return html + "</tr>\n";
}

// A table of two columns holds names and texts; wider ones hold numbers behind the first column.
std::string TableHtml(const Json& table) {
  std::string html =
      absl::StrCat("<h2>", Escaped(table["title"]), "</h2>\n<div class=\"scroll\"><table",
                   table["columns"].size() == 2 ? " class=\"words\"" : "", ">\n",
                   RowHtml(table["columns"], "<th scope=\"col\">", "</th>"));
  for (const Json& row : table["rows"]) absl::StrAppend(&html, RowHtml(row, "<td>", "</td>"));
  return html + "</table></div>\n";
}

}  // namespace

void to_json(Json& json, const ReportTable& table) {
  json = {{"title", table.title}, {"columns", table.columns}, {"rows", table.rows}};
}

std::string TableText(const ReportTable& table, const std::string& indent) {
  std::vector<std::vector<std::string>> lines = table.rows;
  lines.insert(lines.begin(), table.columns);
  std::vector<size_t> widths(table.columns.size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    absl::StrAppend(&text, indent, absl::StrFormat("%-*s", widths[0], line[0]));
    for (size_t i = 1; i < line.size(); ++i) {
      absl::StrAppend(&text, absl::StrFormat("  %*s", widths[i], line[i]));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string NumberText(double value) {
  return std::abs(value) < 1000 ? absl::StrFormat("%.4g", value) : absl::StrFormat("%.0f", value);
}

Json BeginReport(const std::string& title) {
  return {{"title", title},
          {"machine", MachineName()},
          {"commit", std::string(kCommit)},
          {"date", absl::FormatTime("%Y-%m-%d %H:%M UTC", DateNow(), absl::UTCTimeZone())},
          {"charts", Json::array()},
          {"tables", Json::array()}};
}

std::string ReportJson(const Json& report) {
  return report.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

std::string ReportPage(const Json& report) {
  std::string tables;
  for (const Json& table : report["tables"]) absl::StrAppend(&tables, TableHtml(table));
  // Only strings of JSON hold "<": escaped, none of them ends the script element or hides its end.
  const std::string json = absl::StrReplaceAll(ReportJson(report), {{"<", "\\u003c"}});
  return absl::StrReplaceAll(
      kPageTemplate,
      {{"@TITLE@", Escaped(report["title"])}, {"@TABLES@", tables}, {"@REPORT@", json}});
}

}  // namespace lowkey

#include "client/load/trace.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/load/lengths.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr double kMaxArrivalSeconds = 86400;

absl::StatusOr<TraceRow> ParseJsonRow(absl::string_view line, const std::string& where) {
  LK_ASSIGN_OR_RETURN(const nlohmann::json json,
                      ParseJsonObject({line.data(), line.size()}, where, 2));
  const JsonFields fields(json, where);
  TraceRow row;
  LK_ASSIGN_OR_RETURN(row.arrival_s, fields.RequiredNumber("arrival_s", {0, kMaxArrivalSeconds}));
  LK_ASSIGN_OR_RETURN(const int64_t prompt, fields.RequiredInt("prompt_tokens", {1, kMaxLength}));
  LK_ASSIGN_OR_RETURN(const int64_t output, fields.RequiredInt("output_tokens", {1, kMaxLength}));
  row.n_prompt_tokens = static_cast<int32_t>(prompt);
  row.n_output_tokens = static_cast<int32_t>(output);
  return row;
}

absl::StatusOr<TraceRow> ParseCsvRow(absl::string_view line, const std::string& where) {
  const std::vector<absl::string_view> parts = absl::StrSplit(line, ',');
  TraceRow row;
  const bool is_read = parts.size() == 3 && absl::SimpleAtod(parts[0], &row.arrival_s) &&
                       absl::SimpleAtoi(parts[1], &row.n_prompt_tokens) &&
                       absl::SimpleAtoi(parts[2], &row.n_output_tokens);
  const auto is_length = [](int32_t n) { return n >= 1 && n <= kMaxLength; };
  if (is_read && row.arrival_s >= 0 && row.arrival_s <= kMaxArrivalSeconds &&
      is_length(row.n_prompt_tokens) && is_length(row.n_output_tokens)) {
    return row;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": \"", std::string(line.substr(0, 80)), "\", expected arrival seconds in 0..",
      kMaxArrivalSeconds, ", prompt tokens and output tokens in 1..", kMaxLength));
}

// Names of columns begin with a letter, numbers do not.
bool IsHeader(absl::string_view line) { return absl::ascii_isalpha(line[0]); }

}  // namespace

absl::StatusOr<std::vector<TraceRow>> ParseTrace(std::string_view text, const std::string& name) {
  std::vector<TraceRow> rows;
  int64_t line_number = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    line = absl::StripAsciiWhitespace(line);
    ++line_number;
    if (line.empty() || (line_number == 1 && IsHeader(line))) continue;
    const std::string where = absl::StrCat(name, ":", line_number);
    LK_ASSIGN_OR_RETURN(const TraceRow row,
                        line[0] == '{' ? ParseJsonRow(line, where) : ParseCsvRow(line, where));
    if (!rows.empty() && row.arrival_s < rows.back().arrival_s) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": arrival at ", row.arrival_s,
                                                     " s, expected at least ",
                                                     rows.back().arrival_s, " s, the line before"));
    }
    rows.push_back(row);
  }
  if (rows.empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": no request in it"));
  return rows;
}

}  // namespace lowkey

#include "server/config/profile.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr int64_t kFormat = 3;
constexpr Range<double> kRates = {1.0, 1e18};
constexpr int64_t kMaxTokens = int64_t{1} << 30;
constexpr size_t kMaxPoints = 64;

absl::Status CheckPoints(const json& points, const std::string& name) {
  const bool is_objects =
      points.is_array() && !points.empty() && points.size() <= kMaxPoints &&
      std::all_of(points.begin(), points.end(), [](const json& p) { return p.is_object(); });
  if (is_objects) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected an array of 1..", kMaxPoints, " objects"));
}

absl::StatusOr<std::vector<LinearRate>> ParseLinear(const json& points, const std::string& name) {
  LK_RETURN_IF_ERROR(CheckPoints(points, name));
  std::vector<LinearRate> rates;
  for (const json& point : points) {
    const JsonFields fields(point, name);
    const int64_t least = rates.empty() ? 1 : rates.back().n_rows + 1;
    LinearRate& rate = rates.emplace_back();
    LK_ASSIGN_OR_RETURN(rate.n_rows, fields.RequiredInt("rows", {least, kMaxTokens}));
    LK_ASSIGN_OR_RETURN(rate.rate, fields.RequiredNumber("rate", kRates));
  }
  return rates;
}

absl::StatusOr<std::vector<AttentionRate>> ParseRates(const json& points, const std::string& name) {
  LK_RETURN_IF_ERROR(CheckPoints(points, name));
  std::vector<AttentionRate> rates;
  for (const json& point : points) {
    const JsonFields fields(point, name);
    const int64_t least = rates.empty() ? 1 : rates.back().n_tokens + 1;
    AttentionRate& rate = rates.emplace_back();
    LK_ASSIGN_OR_RETURN(rate.n_tokens, fields.RequiredInt("tokens", {least, kMaxTokens}));
    LK_ASSIGN_OR_RETURN(rate.prefill, fields.RequiredNumber("prefill", kRates));
    LK_ASSIGN_OR_RETURN(rate.decode, fields.RequiredNumber("decode", kRates));
  }
  return rates;
}

}  // namespace

std::string ProfileJson(const SelectionProfile& profile) {
  nlohmann::ordered_json out = {{"format", kFormat}};
  for (const LinearRate& rate : profile.linear) {
    out["linear"].push_back({{"rows", rate.n_rows}, {"rate", rate.rate}});
  }
  out["rates"] = nlohmann::ordered_json::object();
  for (const auto& [label, rates] : profile.rates) {
    for (const AttentionRate& rate : rates) {
      out["rates"][label].push_back(
          {{"tokens", rate.n_tokens}, {"prefill", rate.prefill}, {"decode", rate.decode}});
    }
  }
  return out.dump(2) + "\n";
}

absl::StatusOr<SelectionProfile> ParseProfile(const std::string& text, const std::string& name) {
  LK_ASSIGN_OR_RETURN(const json root, ParseJsonObject(text, name, 8));
  const JsonFields fields(root, name);
  LK_RETURN_IF_ERROR(fields.RequiredInt("format", {kFormat, kFormat}).status());
  SelectionProfile profile;
  profile.name = std::filesystem::path(name).filename();
  LK_ASSIGN_OR_RETURN(profile.linear, ParseLinear(root.value("linear", json()), name + ": linear"));
  LK_ASSIGN_OR_RETURN(const auto rates, fields.Object("rates"));
  if (!rates.has_value()) return fields.Error("rates", "an object");
  for (const auto& [label, points] : root["rates"].items()) {
    LK_ASSIGN_OR_RETURN(profile.rates[label],
                        ParseRates(points, absl::StrCat(rates->name(), ": ", label)));
  }
  return profile;
}

}  // namespace lowkey

#include "server/config/profile.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr Range<double> kRates = {1.0, 1e18};
constexpr int64_t kMaxTokens = int64_t{1} << 30;
constexpr size_t kMaxLengths = 64;

absl::StatusOr<std::vector<AttentionRate>> ParseRates(const json& points, const std::string& name) {
  std::vector<AttentionRate> rates;
  if (!points.is_array() || points.empty() || points.size() > kMaxLengths) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected an array of 1..", kMaxLengths, " objects"));
  }
  for (const json& point : points) {
    const JsonFields fields(point, name);
    if (!point.is_object()) return absl::InvalidArgumentError(name + ": expected objects");
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
  nlohmann::ordered_json out = {
      {"format", 2},
      {"linear", {{"prefill", profile.linear_prefill}, {"decode", profile.linear_decode}}}};
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
  LK_RETURN_IF_ERROR(fields.RequiredInt("format", {2, 2}).status());
  SelectionProfile profile;
  profile.name = std::filesystem::path(name).filename();
  LK_ASSIGN_OR_RETURN(const auto linear, fields.Object("linear"));
  if (!linear.has_value()) return fields.Error("linear", "an object");
  LK_ASSIGN_OR_RETURN(profile.linear_prefill, linear->RequiredNumber("prefill", kRates));
  LK_ASSIGN_OR_RETURN(profile.linear_decode, linear->RequiredNumber("decode", kRates));
  LK_ASSIGN_OR_RETURN(const auto rates, fields.Object("rates"));
  if (!rates.has_value()) return fields.Error("rates", "an object");
  for (const auto& [label, points] : root["rates"].items()) {
    LK_ASSIGN_OR_RETURN(profile.rates[label],
                        ParseRates(points, absl::StrCat(rates->name(), ": ", label)));
  }
  return profile;
}

}  // namespace lowkey

#include "server/api/page/data.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/clock.h"
#include "engine/base/percents.h"
#include "engine/base/retry_after.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "lowkey/v1/admin.pb.h"
#include "server/api/http/api_error.h"
#include "server/api/http/proto_json.h"
#include "server/api/lowkey/convert_response.h"
#include "server/config/json_text.h"
#include "server/version.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kModelPath = "/lowkey/v1/model", kStatsPath = "/lowkey/v1/stats",
                           kCrossoverPath = "/lowkey/v1/crossover", kCachePath = "/lowkey/v1/cache";
constexpr absl::Duration kRetryAfter = absl::Seconds(2);
constexpr int64_t kShortest = 16;  // tokens of the shortest length that is shown

// One `name=value` of a query, decoded.
using Parameter = std::pair<std::string, std::string>;

// Decodes as browsers encode forms: '+' is a space.
absl::StatusOr<std::string> Decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    const std::optional<char> character = PercentCharacter(text.substr(i));
    if (!character.has_value()) {
      return absl::InvalidArgumentError(
          "query: a % that no two hexadecimal digits follow, expected percent encoding");
    }
    out += *character;
    i += 2;
  }
  return out;
}

// The target's length is bounded by that of a request's head.
absl::StatusOr<std::vector<Parameter>> ParametersOf(std::string_view query) {
  std::vector<Parameter> parameters;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(std::string(query), '&', absl::SkipEmpty()))) {
    const std::pair<std::string, std::string> halves =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    Parameter& parameter = parameters.emplace_back();
    LK_ASSIGN_OR_RETURN(parameter.first, Decoded(halves.first));
    LK_ASSIGN_OR_RETURN(parameter.second, Decoded(halves.second));
  }
  return parameters;
}

absl::Status UnknownParameter(const std::string& name, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": unknown parameter, expected ", std::string(expected)));
}

absl::StatusOr<OptionValue> ValueOf(const AttentionOption& option, const std::string& text) {
  const auto refuse = [&](std::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(option.name), ": \"", text,
                                                   "\", expected ", std::string(expected)));
  };
  if (option.kind == OptionKind::kInteger) {
    int32_t number = 0;
    if (!absl::SimpleAtoi(text, &number)) return refuse("an integer");
    return OptionValue(number);
  }
  if (option.kind != OptionKind::kSwitch) return OptionValue(text);
  if (text != "true" && text != "false") return refuse("true or false");
  return OptionValue(text == "true");
}

absl::StatusOr<AttentionChoice> AttentionOf(const std::vector<Parameter>& parameters) {
  AttentionChoice choice;
  for (const auto& parameter : parameters) {
    const std::string &name = parameter.first, &text = parameter.second;
    if (name == "mechanism") {
      choice.mechanism = text;
      continue;
    }
    const auto table = AttentionOptionTable();
    const auto option = std::find_if(table.begin(), table.end(),
                                     [&name = name](const auto& row) { return row.name == name; });
    if (option == table.end()) {
      return UnknownParameter(name, "mechanism or an option of lowkey.v1.AttentionOptions");
    }
    LK_ASSIGN_OR_RETURN(choice.options[name], ValueOf(*option, text));
  }
  return choice;
}

Json OptionJson(const OptionValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

const char* KindName(OptionKind kind) {
  switch (kind) {
    case OptionKind::kName:
      return "name";
    case OptionKind::kRank:
      return "rank";
    case OptionKind::kPrefixStorage:
      return "text";
    case OptionKind::kInteger:
      return "integer";
    case OptionKind::kSwitch:
      return "switch";
  }
  return "";
}

// Returns the rows of AttentionOptionTable, with the values that requests get by default.
Json OptionRows(const AttentionOptions& defaults) {
  Json rows = Json::array();
  for (const AttentionOption& option : AttentionOptionTable()) {
    Json row = {{"name", std::string(option.name)},
                {"mechanism", std::string(MechanismName(option.owner))},
                {"kind", KindName(option.kind)},
                {"default", OptionJson(option.get(defaults))},
                {"help", std::string(option.help)}};
    if (option.kind == OptionKind::kName) {
      const int32_t last = std::min(option.traits.max, option.names->size() - 1);
      for (int32_t value = option.traits.min; value <= last; ++value) {
        row["values"].push_back(std::string(FindName(*option.names, value)));
      }
    } else if (option.kind == OptionKind::kInteger) {
      row["min"] = option.traits.min;
      row["max"] = option.traits.max;
      row["step"] = option.traits.step;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string ModelJson(const TextService& service) {
  Json json = ProtoJson(DescribeModel(service));
  json["attention_options"] = OptionRows(service.options().defaults.attention);
  Json& objectives = json["objectives"];
  for (const Objective o : {Objective::kLatency, Objective::kMemory, Objective::kBalanced}) {
    objectives.push_back(std::string(NameOf(o)));
  }
  return JsonLine(json);
}

// Returns lengths up to `last`: 16 and its doubles, each with its half as much again if `is_dense`.
std::vector<int64_t> Lengths(int64_t last, bool is_dense) {
  std::vector<int64_t> lengths;
  for (int64_t n = kShortest; n < last; n *= 2) {
    lengths.push_back(n);
    if (is_dense && n + n / 2 < last) lengths.push_back(n + n / 2);
  }
  lengths.push_back(std::max<int64_t>(1, last));
  return lengths;
}

Json CostsJson(const MechanismCosts& costs, const AttentionOptions& base) {
  AttentionOptions plain = base;
  plain.mechanism = costs.options.mechanism;
  Json json = {{"mechanism", std::string(MechanismName(costs.options.mechanism))},
               {"label", AttentionLabel(costs.options)},
               {"has_default_options", AttentionLabel(costs.options) == AttentionLabel(plain)},
               {"approximate", costs.is_approximate},
               {"points", Json::array()}};
  for (const CostPoint& point : costs.points) {
    json["points"].push_back({{"prompt_tokens", point.n_tokens},
                              {"prefill_s", point.prefill_seconds},
                              {"decode_s", point.decode_seconds},
                              {"request_s", point.request_seconds},
                              {"cache_bytes", point.cache_bytes}});
  }
  return json;
}

Json SelectionJson(const SelectionByLength& selection) {
  Json json = {{"objective", std::string(NameOf(selection.rules.objective))},
               {"allow_approximate", selection.rules.allow_approximate},
               {"first", nullptr},
               {"crossovers", Json::array()}};
  if (selection.first.has_value()) json["first"] = std::string(MechanismName(*selection.first));
  for (const Crossover& crossover : selection.crossovers) {
    json["crossovers"].push_back({{"from", std::string(MechanismName(crossover.from))},
                                  {"to", std::string(MechanismName(crossover.to))},
                                  {"prompt_tokens", crossover.tokens}});
  }
  return json;
}

absl::StatusOr<std::string> CrossoverJson(const TextService& service, std::string_view query,
                                          bool is_measuring) {
  const Defaults& defaults = service.options().defaults;
  const int64_t context = service.engine().limits().context_tokens;
  CostQuery costs;
  costs.base = defaults.attention;
  costs.n_new_tokens = std::clamp<int64_t>(context / 2, 1, defaults.max_new_tokens);
  LK_ASSIGN_OR_RETURN(const auto parameters, ParametersOf(query));
  for (const auto& [name, text] : parameters) {
    if (name != "new_tokens") return UnknownParameter(name, "new_tokens");
    if (!absl::SimpleAtoi(text, &costs.n_new_tokens) || costs.n_new_tokens < 1 ||
        costs.n_new_tokens >= context) {
      return absl::InvalidArgumentError(
          absl::StrCat("new_tokens: \"", text, "\", expected 1..", context - 1));
    }
  }
  costs.lengths = Lengths(context - costs.n_new_tokens, /*is_dense=*/false);
  const CostTable table = service.engine().Costs(costs);
  if (table.profile.empty() && is_measuring) {
    return WithRetryAfter(
        absl::UnavailableError("the rates of this machine are still being measured; try again"),
        kRetryAfter);
  }
  if (table.profile.empty()) {
    return WithErrorCode(
        absl::NotFoundError(
            "no rates of this machine were measured: the model offers no choice of mechanisms, a "
            "device computes, or the server was started with --profile none (lowkey crossover "
            "measures them)"),
        "not_measured");
  }
  Json json = {{"profile", table.profile},
               {"context_tokens", context},
               {"new_tokens", costs.n_new_tokens},
               {"mechanisms", Json::array()},
               {"selections", Json::array()}};
  for (const auto& m : table.mechanisms) json["mechanisms"].push_back(CostsJson(m, costs.base));
  for (const auto& s : table.selections) json["selections"].push_back(SelectionJson(s));
  return JsonLine(json);
}

absl::StatusOr<std::string> CacheJson(const TextService& service, std::string_view query) {
  const AttentionOptions& defaults = service.options().defaults.attention;
  LK_ASSIGN_OR_RETURN(const auto parameters, ParametersOf(query));
  LK_ASSIGN_OR_RETURN(const AttentionChoice choice, AttentionOf(parameters));
  LK_ASSIGN_OR_RETURN(const AttentionOptions options, ResolveAttention(choice, defaults));
  const Engine& engine = service.engine();
  const std::vector<int64_t> lengths = Lengths(engine.limits().context_tokens, /*is_dense=*/true);
  LK_ASSIGN_OR_RETURN(const std::vector<CacheBytes> bytes, engine.BytesByLength(options, lengths));
  LK_ASSIGN_OR_RETURN(const std::vector<CacheBytes> standard, engine.BytesByLength({}, lengths));
  Json json = {{"mechanism", std::string(MechanismName(options.mechanism))},
               {"label", AttentionLabel(options)},
               {"points", Json::array()}};
  for (size_t i = 0; i < lengths.size(); ++i) {
    json["points"].push_back({{"tokens", lengths[i]},
                              {"cache_bytes", bytes[i].held},
                              {"standard_cache_bytes", standard[i].held}});
  }
  return JsonLine(json);
}

}  // namespace

PageData::PageData(const TextService& service, const RpcWorkers& workers,
                   std::function<bool()> is_measuring)
    : service_(service),
      workers_(workers),
      is_measuring_(std::move(is_measuring)),
      start_(SteadyNow()) {}

void PageData::AddRoutes(HttpRoutes& routes, const HttpServices& services) const {
  for (const std::string_view path : {kModelPath, kCrossoverPath, kCachePath, kStatsPath}) {
    routes.AddCall("GET", path, services,
                   OnWorker(workers_, [this](const RpcContext& context, const CallState&,
                                             const std::string& query) {
                     return Answer(context.method, query);
                   }));
  }
}

absl::StatusOr<std::string> PageData::Answer(std::string_view path, std::string_view query) const {
  if (path == kCachePath) return CacheJson(service_, query);
  if (path == kCrossoverPath) return Crossover(query);
  if (path == kModelPath) return ModelJson(service_);
  v1::StatsResponse stats;
  FillStats(service_.engine().Stats(), stats);
  stats.set_version(kVersion);
  stats.set_uptime_s(absl::ToDoubleSeconds(SteadyNow() - start_));
  return JsonLine(ProtoJson(stats));
}

absl::StatusOr<std::string> PageData::Crossover(std::string_view query) const {
  if (computes_crossover_.exchange(true)) {
    return WithRetryAfter(
        absl::UnavailableError("another client's crossovers are being computed; try again"),
        kRetryAfter);
  }
  const absl::Cleanup end = [this] { computes_crossover_ = false; };
  return CrossoverJson(service_, query, is_measuring_ != nullptr && is_measuring_());
}

}  // namespace lowkey

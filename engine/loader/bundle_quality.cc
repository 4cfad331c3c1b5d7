#include "engine/loader/bundle_quality.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/loader/mapped_file.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr Range<double> kRatios = {1e-6, 1e6}, kShares = {0, 1};
constexpr int64_t kMaxPointTokens = int64_t{1} << 30;
constexpr size_t kMaxPoints = 32;
constexpr size_t kMaxMeasured = 64;
constexpr char kField[] = "perplexity_ratio";

// The fields of shares by length.
struct ShareField {
  const char* name;
  std::vector<MeasuredShare> MeasuredQuality::*shares;
};
constexpr ShareField kShareFields[] = {{"recalled_digits", &MeasuredQuality::recalled_digits},
                                       {"copied_tokens", &MeasuredQuality::copied_tokens}};
constexpr char kAnswers[] = "right_answers";

// Reads an object of numbers by a window's tokens; empty where the field is absent.
absl::StatusOr<std::map<int64_t, double>> ReadByLength(const JsonFields& fields, const char* field,
                                                       Range<double> range) {
  std::map<int64_t, double> numbers;
  const json* value = fields.Find(field);
  if (value == nullptr) return numbers;
  if (!value->is_object()) return fields.Error(field, "an object of numbers by a window's tokens");
  const JsonFields by_length(*value, absl::StrCat(fields.name(), ": ", field));
  for (const auto& [key, unused] : value->items()) {
    int64_t n_tokens = 0;
    if (!absl::SimpleAtoi(key, &n_tokens) || n_tokens < 1 || n_tokens > kMaxPointTokens ||
        numbers.size() == kMaxPoints) {
      return by_length.Error(key.c_str(),
                             absl::StrCat("at most ", kMaxPoints, " numbers by a window's tokens"));
    }
    LK_ASSIGN_OR_RETURN(const double number, by_length.RequiredNumber(key.c_str(), range));
    if (!numbers.emplace(n_tokens, number).second) {
      return by_length.Error(key.c_str(), "each length once");
    }
  }
  return numbers;
}

absl::StatusOr<OptionValue> ReadOption(const json& value, const AttentionOption& option,
                                       const JsonFields& options) {
  const std::string name(option.name);
  if (option.kind == OptionKind::kInteger) {
    LK_ASSIGN_OR_RETURN(const auto number, options.Int(name.c_str(), {INT32_MIN, INT32_MAX}));
    return static_cast<int32_t>(number.value_or(0));
  }
  if (option.kind == OptionKind::kSwitch) {
    LK_ASSIGN_OR_RETURN(const auto is_on, options.Bool(name.c_str()));
    return is_on.value_or(false);
  }
  if (!value.is_string()) return options.Error(name.c_str(), "text");
  return value.get<std::string>();
}

// Reads the options of one mechanism.
absl::Status ReadOptions(const JsonFields& fields, AttentionOptions& out) {
  LK_ASSIGN_OR_RETURN(const auto options, fields.Object("options"));
  if (!options.has_value()) return absl::OkStatus();
  OptionValues values;
  for (const auto& entry : fields.Find("options")->items()) {
    const std::string& key = entry.key();
    const auto table = AttentionOptionTable();
    const auto row = std::find_if(table.begin(), table.end(), [&](const AttentionOption& option) {
      return option.name == key && option.owner == out.mechanism;
    });
    if (row == table.end()) {
      return options->Error(
          key.c_str(), absl::StrCat("an option of ", std::string(MechanismName(out.mechanism))));
    }
    LK_ASSIGN_OR_RETURN(values[std::string(row->name)], ReadOption(entry.value(), *row, *options));
  }
  absl::Status status = SetOptions(values, out);
  if (status.ok()) status = ValidateAttentionOptions(out);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(options->name(), ": ", status.message()));
}

absl::StatusOr<MeasuredQuality> ReadMeasured(const json& entry, const std::string& name) {
  const JsonFields fields(entry, name);
  if (!entry.is_object()) return absl::InvalidArgumentError(name + ": expected an object");
  MeasuredQuality measured;
  LK_ASSIGN_OR_RETURN(const auto mechanism, fields.String("mechanism"));
  const auto id = ParseMechanism(mechanism.value_or(""));
  if (!id.ok()) return fields.Error("mechanism", "a mechanism's name");
  measured.options.mechanism = *id;
  LK_RETURN_IF_ERROR(ReadOptions(fields, measured.options));
  LK_ASSIGN_OR_RETURN(measured.ratios, ReadPerplexityRatios(fields));
  for (const ShareField& field : kShareFields) {
    LK_ASSIGN_OR_RETURN(const auto shares, ReadByLength(fields, field.name, kShares));
    for (const auto& [n_tokens, share] : shares) {
      (measured.*field.shares).push_back({n_tokens, share});
    }
  }
  LK_ASSIGN_OR_RETURN(measured.right_answers, fields.Number(kAnswers, kShares));
  return measured;
}

// Returns the points of both in ascending order; of those of one length the new one.
template <typename Point>
std::vector<Point> Merged(const std::vector<Point>& added, const std::vector<Point>& old,
                          double Point::*value) {
  std::map<int64_t, double> all;
  for (const auto* points : {&added, &old}) {
    for (const Point& point : *points) all.emplace(point.n_tokens, point.*value);
  }
  std::vector<Point> merged;
  for (const auto& [n_tokens, number] : all) merged.push_back({n_tokens, number});
  return merged;
}

// Takes the entry in, with its lengths in place of those that an entry of equal options has.
void Merge(const MeasuredQuality& from, std::vector<MeasuredQuality>& all) {
  const std::string label = AttentionLabel(from.options);
  const auto same = std::find_if(all.begin(), all.end(), [&](const MeasuredQuality& m) {
    return AttentionLabel(m.options) == label;
  });
  if (same == all.end()) {
    all.push_back(from);
    return;
  }
  same->ratios = PerplexityRatios(
      Merged(from.ratios.points(), same->ratios.points(), &PerplexityRatios::Point::ratio));
  for (const ShareField& field : kShareFields) {
    (*same).*field.shares =
        Merged(from.*field.shares, (*same).*field.shares, &MeasuredShare::share);
  }
  if (from.right_answers.has_value()) same->right_answers = from.right_answers;
}

// Four digits say all that windows of one text can.
double Rounded(double x) { return std::round(x * 1e4) / 1e4; }

nlohmann::ordered_json ToJson(const MeasuredQuality& m) {
  nlohmann::ordered_json entry = {{"mechanism", std::string(MechanismName(m.options.mechanism))}};
  for (const AttentionOption& option : AttentionOptionTable()) {
    const OptionValue value = option.get(m.options);
    if (option.owner != m.options.mechanism || value == option.get(AttentionOptions())) continue;
    std::visit([&](const auto& v) { entry["options"][std::string(option.name)] = v; }, value);
  }
  for (const PerplexityRatios::Point& point : m.ratios.points()) {
    entry[kField][absl::StrCat(point.n_tokens)] = Rounded(point.ratio);
  }
  for (const ShareField& field : kShareFields) {
    for (const MeasuredShare& point : m.*field.shares) {
      entry[field.name][absl::StrCat(point.n_tokens)] = Rounded(point.share);
    }
  }
  if (m.right_answers.has_value()) entry[kAnswers] = Rounded(*m.right_answers);
  return entry;
}

}  // namespace

absl::StatusOr<PerplexityRatios> ReadPerplexityRatios(const JsonFields& fields) {
  const json* value = fields.Find(kField);
  if (value == nullptr) return PerplexityRatios();
  if (!value->is_object()) {
    LK_ASSIGN_OR_RETURN(const auto ratio, fields.Number(kField, kRatios));
    return PerplexityRatios({{1, *ratio}});
  }
  LK_ASSIGN_OR_RETURN(const auto ratios, ReadByLength(fields, kField, kRatios));
  std::vector<PerplexityRatios::Point> points;
  for (const auto& [n_tokens, ratio] : ratios) points.push_back({n_tokens, ratio});
  return PerplexityRatios(std::move(points));
}

absl::StatusOr<std::vector<MeasuredQuality>> ReadMeasuredQuality(const JsonFields& bundle) {
  std::vector<MeasuredQuality> measured;
  const json* entries = bundle.Find("measured");
  if (entries == nullptr) return measured;
  if (!entries->is_array() || entries->size() > kMaxMeasured) {
    return bundle.Error("measured", absl::StrCat("an array of at most ", kMaxMeasured, " objects"));
  }
  for (size_t i = 0; i < entries->size(); ++i) {
    LK_ASSIGN_OR_RETURN(
        measured.emplace_back(),
        ReadMeasured((*entries)[i], absl::StrCat(bundle.name(), ": measured[", i, "]")));
  }
  return measured;
}

absl::Status RecordQuality(const std::string& directory,
                           const std::vector<MeasuredQuality>& measured) {
  const std::string path = absl::StrCat(directory, "/", kBundleFile);
  std::string text = R"({"format": 1, "mechanisms": []})";
  if (const auto file = MappedFile::Open(path, kMaxBundleBytes); file.ok()) {
    text = (*file)->text();
  } else if (!absl::IsNotFound(file.status())) {
    return file.status();
  }
  LK_ASSIGN_OR_RETURN(const json checked, ParseJsonObject(text, kBundleFile, kMaxBundleDepth));
  LK_ASSIGN_OR_RETURN(std::vector<MeasuredQuality> all,
                      ReadMeasuredQuality(JsonFields(checked, kBundleFile)));
  for (const MeasuredQuality& m : measured) Merge(m, all);
  // Parsed once more, so that the other fields keep their order.
  auto bundle = nlohmann::ordered_json::parse(text);
  bundle["measured"] = nlohmann::ordered_json::array();
  for (const MeasuredQuality& m : all) bundle["measured"].push_back(ToJson(m));
  // A file that the reader refuses would keep the model from opening: nothing is written then.
  const std::string dumped = bundle.dump(2) + "\n";
  LK_ASSIGN_OR_RETURN(const json written, ParseJsonObject(dumped, kBundleFile, kMaxBundleDepth));
  LK_RETURN_IF_ERROR(Prefixed("nothing is recorded",
                              ReadMeasuredQuality(JsonFields(written, kBundleFile)).status()));
  const std::string partial = path + ".partial";
  {
    std::ofstream out(partial);
    out << dumped;
    if (!out.flush()) return absl::UnavailableError(partial + ": cannot be written");
  }
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace lowkey

#include "server/config/flags.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"
#include "server/config/suggestions.h"

namespace lowkey {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;

std::optional<bool> ParseBool(std::string_view text) {
  const std::string lower = absl::AsciiStrToLower(std::string(text));
  if (lower == "true" || lower == "1" || lower == "yes" || lower == "on") return true;
  if (lower == "false" || lower == "0" || lower == "no" || lower == "off") return false;
  return std::nullopt;
}

}  // namespace

FlagSources FlagSources::Process() {
  FlagSources sources;
  sources.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  };
  sources.read_file = [](const std::string& path) { return ReadTextFile(path, kMaxConfigBytes); };
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    const bool has_value = equals != std::string_view::npos && equals + 1 < text.size();
    if (has_value) sources.variables.emplace_back(text.substr(0, equals));
  }
  return sources;
}

std::string EnvironmentName(std::string_view flag_name) {
  return absl::StrCat(
      "LOWKEY_", absl::AsciiStrToUpper(absl::StrReplaceAll(std::string(flag_name), {{"-", "_"}})));
}

bool TakesPath(const Flag& flag) { return flag.value_name == "FILE" || flag.value_name == "PATH"; }

// Applies the sources from weakest to strongest, so that a later source simply replaces values.
class FlagParser {
 public:
  FlagParser(const CommandSpec& spec, absl::Span<const std::string_view> known_flags)
      : spec_(spec), known_flags_(known_flags) {
    for (const FlagGroup& group : spec.groups) {
      for (const Flag& flag : group.flags) {
        flags_.emplace(flag.name, &flag);
        names_.push_back(flag.name);
      }
    }
  }

  absl::StatusOr<FlagValues> Parse(absl::Span<const std::string> arguments,
                                   const FlagSources& sources) {
    LK_RETURN_IF_ERROR(ReadArguments(arguments));
    if (result_.wants_help_) return std::move(result_);
    absl::flat_hash_map<std::string, FlagValues::Value> from_arguments;
    std::swap(from_arguments, result_.values_);
    ApplyDefaults();
    LK_RETURN_IF_ERROR(ApplyConfig(from_arguments, sources));
    LK_RETURN_IF_ERROR(ApplyEnvironment(sources));
    for (auto& [name, value] : from_arguments) result_.values_[name] = std::move(value);
    return std::move(result_);
  }

 private:
  // Words that are a part of a command line belong to no command of their own.
  std::string OfCommand() const {
    return spec_.name.empty() ? "" : absl::StrCat(" of `lowkey ", std::string(spec_.name), "`");
  }

  absl::Status ReadArguments(absl::Span<const std::string> arguments) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      const std::string& argument = arguments[i];
      if (argument == "--") {
        for (++i; i < arguments.size(); ++i) LK_RETURN_IF_ERROR(AddPositional(arguments[i]));
        break;
      }
      if (argument == "-h" || argument == "--help") {
        result_.wants_help_ = true;
      } else if (argument.size() > 1 && argument[0] == '-') {
        LK_RETURN_IF_ERROR(ReadFlag(arguments, i));
      } else {
        LK_RETURN_IF_ERROR(AddPositional(argument));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadFlag(absl::Span<const std::string> arguments, size_t& i) {
    const std::pair<std::string, std::optional<std::string>> parts = Split(arguments[i]);
    const auto it = flags_.find(parts.first);
    if (it == flags_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag ", arguments[i].substr(0, arguments[i].find('=')), OfCommand(),
                       DidYouMean(NearestFlag(parts.first, names_), "--")));
    }
    const std::string origin = absl::StrCat("--", parts.first);
    if (parts.second.has_value()) return Add(*it->second, *parts.second, origin);
    if (it->second->kind == FlagKind::kSwitch) return Add(*it->second, "true", origin);
    if (++i >= arguments.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(origin, ": no value, expected ", std::string(it->second->value_name)));
    }
    return Add(*it->second, arguments[i], origin);
  }

  // Splits "--name=value" into name and value, without the dashes. One dash is taken for two.
  static std::pair<std::string, std::optional<std::string>> Split(std::string_view argument) {
    argument.remove_prefix(argument.starts_with("--") ? 2 : 1);
    const size_t equals = argument.find('=');
    if (equals == std::string_view::npos) return {std::string(argument), std::nullopt};
    return {std::string(argument.substr(0, equals)), std::string(argument.substr(equals + 1))};
  }

  absl::Status AddPositional(const std::string& argument) {
    if (spec_.positional.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", argument,
                                                     "\": `lowkey ", std::string(spec_.name),
                                                     "` takes flags only"));
    }
    result_.positional_.push_back(argument);
    return absl::OkStatus();
  }

  absl::Status Add(const Flag& flag, std::string text, std::string origin) {
    if (flag.kind == FlagKind::kSwitch && !ParseBool(text).has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(origin, ": \"", text, "\", expected true or false"));
    }
    if (text.empty() && TakesPath(flag)) {
      return absl::InvalidArgumentError(
          absl::StrCat(origin, ": \"\", expected ", std::string(flag.value_name)));
    }
    FlagValues::Value& value = result_.values_[std::string(flag.name)];
    if (flag.kind != FlagKind::kRepeated) value.texts.clear();
    value.texts.push_back(std::move(text));
    value.origin = std::move(origin);
    value.is_given = true;
    return absl::OkStatus();
  }

  void ApplyDefaults() {
    for (const auto& [name, flag] : flags_) {
      if (flag->default_value.empty()) continue;
      result_.values_[std::string(name)] = {
          {std::string(flag->default_value)}, absl::StrCat("--", std::string(name)), false};
    }
  }

  absl::Status ApplyEnvironment(const FlagSources& sources) {
    for (const auto& [name, flag] : flags_) {
      const std::string variable = EnvironmentName(name);
      std::optional<std::string> text = sources.environment(variable);
      if (!text.has_value()) continue;
      result_.values_.erase(std::string(name));
      LK_RETURN_IF_ERROR(Add(*flag, *std::move(text), variable));
    }
    return absl::OkStatus();
  }

  absl::Status ApplyConfig(
      const absl::flat_hash_map<std::string, FlagValues::Value>& from_arguments,
      const FlagSources& sources) {
    if (!flags_.contains("config")) return absl::OkStatus();
    std::optional<std::string> path = sources.environment(EnvironmentName("config"));
    const auto it = from_arguments.find("config");
    if (it != from_arguments.end()) path = it->second.texts.back();
    if (!path.has_value()) return absl::OkStatus();
    const absl::StatusOr<std::string> content = sources.read_file(*path);
    if (!content.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("config: ", std::string(content.status().message())));
    }
    int line_number = 0;
    // Editors of Windows begin a file with this mark.
    const absl::string_view lines = absl::StripPrefix(*content, "\xEF\xBB\xBF");
    for (absl::string_view line : absl::StrSplit(lines, '\n')) {
      LK_RETURN_IF_ERROR(ReadConfigLine(absl::StripAsciiWhitespace(line),
                                        absl::StrCat(*path, ":", ++line_number, ": ")));
    }
    return absl::OkStatus();
  }

  absl::Status ReadConfigLine(absl::string_view line, const std::string& where) {
    if (line.empty() || line[0] == '#') return absl::OkStatus();
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "\"", line, "\", expected `flag = value`"));
    }
    const std::string name(absl::StripAsciiWhitespace(line.substr(0, equals)));
    const std::string value(absl::StripAsciiWhitespace(line.substr(equals + 1)));
    if (name == "config") {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "config: not in a file that --config reads, expected one file"));
    }
    const auto it = flags_.find(name);
    if (it != flags_.end()) return AddFromConfig(*it->second, value, where);
    if (std::find(known_flags_.begin(), known_flags_.end(), name) != known_flags_.end()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(
        where, "unknown flag ", name, DidYouMean(NearestFlag(name, known_flags_), "")));
  }

  absl::Status AddFromConfig(const Flag& flag, std::string value, const std::string& where) {
    const std::string name(flag.name);
    const auto it = result_.values_.find(name);
    if (it != result_.values_.end() && !it->second.is_given) result_.values_.erase(it);
    return Add(flag, std::move(value), absl::StrCat(where, name));
  }

  const CommandSpec& spec_;
  absl::Span<const std::string_view> known_flags_;
  absl::flat_hash_map<std::string_view, const Flag*> flags_;
  std::vector<std::string_view> names_;
  FlagValues result_;
};

absl::StatusOr<FlagValues> ParseFlags(const CommandSpec& spec,
                                      absl::Span<const std::string> arguments,
                                      absl::Span<const std::string_view> known_flags,
                                      const FlagSources& sources) {
  return FlagParser(spec, known_flags).Parse(arguments, sources);
}

bool FlagValues::Switch(std::string_view name) const {
  const Value* value = Find(name);
  return value != nullptr && ParseBool(value->texts.back()).value_or(false);
}

}  // namespace lowkey

#ifndef LOWKEY_SERVER_CONFIG_FLAGS_H_
#define LOWKEY_SERVER_CONFIG_FLAGS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lowkey {

enum class FlagKind {
  kValue,     // --name VALUE or --name=VALUE
  kRepeated,  // the same, and each occurrence adds one
  kSwitch,    // --name, or --name=true|false
};

// One flag, as data. Its environment variable is LOWKEY_ and the name in capitals with underscores.
struct Flag {
  std::string_view name;           // "max-new-tokens"
  std::string_view value_name;     // "N"; empty for a switch
  std::string_view default_value;  // parsed like a given one; empty: none
  std::string_view help;           // one line
  FlagKind kind = FlagKind::kValue;
};

struct FlagGroup {
  std::string_view title;  // "Sampling"
  absl::Span<const Flag> flags;
};

struct CommandSpec {
  std::string_view name;         // "generate"
  std::string_view summary;      // one line, for the list of commands
  std::string_view positional;   // "[TEXT]"; empty: the command takes none
  std::string_view description;  // a paragraph
  std::vector<FlagGroup> groups;
  std::vector<std::string_view> examples;  // whole command lines
};

// Where flags come from besides the command line. Replaced in tests.
struct FlagSources {
  std::function<std::optional<std::string>(const std::string&)> environment;
  std::function<absl::StatusOr<std::string>(const std::string&)> read_file;

  // This process's environment and files; a config file is at most 1 MiB.
  static FlagSources Process();
};

// The values of one command's flags, and what was left over. Getters must name a flag of the
// command. Errors are INVALID_ARGUMENT and name the flag the way it was given:
// `--port: "abc", expected an integer in 0..65535`, or `LOWKEY_PORT: ...`, or `file:3: port: ...`.
class FlagValues {
 public:
  struct Value {
    std::vector<std::string> texts;
    std::string origin;    // "--port", "LOWKEY_PORT", "file:3: port"; of the last occurrence
    bool is_given = true;  // false: the flag's default
  };

  bool IsGiven(std::string_view name) const;
  bool Has(std::string_view name) const;  // given, or has a default

  // The text; empty when there is none.
  std::string Text(std::string_view name) const;
  std::vector<std::string> Texts(std::string_view name) const;

  // Absent when not given and without a default.
  absl::StatusOr<std::optional<int64_t>> Int(std::string_view name, int64_t min, int64_t max) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view name) const;
  absl::StatusOr<std::optional<uint64_t>> Seed(std::string_view name) const;
  // "1048576", "512K", "512M", "2G", with or without "iB" or "B": powers of 1,024.
  absl::StatusOr<std::optional<int64_t>> Bytes(std::string_view name) const;
  // "30", "30s", "500ms", "2m": seconds unless said; at most a day.
  absl::StatusOr<std::optional<double>> Seconds(std::string_view name) const;
  // "5:-100,17:2.5".
  absl::StatusOr<std::vector<std::pair<int32_t, float>>> IdBiases(std::string_view name) const;
  bool Switch(std::string_view name) const;

  // An error in the flag's own words.
  absl::Status Error(std::string_view name, std::string_view expected) const;

  const std::vector<std::string>& positional() const { return positional_; }
  bool wants_help() const { return wants_help_; }

 private:
  friend class FlagParser;

  const Value* Find(std::string_view name) const;

  absl::flat_hash_map<std::string, Value> values_;
  std::vector<std::string> positional_;
  bool wants_help_ = false;
};

// Reads `arguments` (after the command's name) for `spec`. Precedence: command line, environment,
// config file (--config or LOWKEY_CONFIG), default. `known_flags` are the names of every command's
// flags: one of them in a config file is not an error for a command that lacks it.
// INVALID_ARGUMENT for an unknown flag (with the nearest name), a missing value, an unexpected
// positional, a malformed config line; what read_file returns when the config file cannot be read.
absl::StatusOr<FlagValues> ParseFlags(const CommandSpec& spec,
                                      absl::Span<const std::string> arguments,
                                      absl::Span<const std::string_view> known_flags,
                                      const FlagSources& sources);

// "LOWKEY_MAX_NEW_TOKENS" for "max-new-tokens".
std::string EnvironmentName(std::string_view flag_name);

// The candidate with the smallest edit distance to `text`, when it is near enough to be meant.
std::optional<std::string_view> NearestName(std::string_view text,
                                            absl::Span<const std::string_view> candidates);

// "lowkey CMD --help": usage, description, aligned flags with defaults, examples.
std::string HelpText(const CommandSpec& spec);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_FLAGS_H_

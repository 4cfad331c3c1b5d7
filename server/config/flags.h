#ifndef LOWKEY_SERVER_CONFIG_FLAGS_H_
#define LOWKEY_SERVER_CONFIG_FLAGS_H_

#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace lowkey {

enum class FlagKind {
  kValue,     // --name VALUE or --name=VALUE
  kRepeated,  // the same, and each occurrence adds one
  kSwitch,    // --name, or --name=true|false
};

// A flag of a command. Its environment variable is LOWKEY_ and the name in capitals, _ for -.
struct Flag {
  std::string_view name;           // "max-new-tokens"
  std::string_view value_name;     // "N"; empty for a switch
  std::string_view default_value;  // parsed like a given value; empty: none
  std::string_view help;           // one sentence, wrapped where it is shown
  FlagKind kind = FlagKind::kValue;
  std::string_view choices = {};  // "exact,compressed": values to complete; empty: any
};

struct FlagGroup {
  std::string_view title;  // "Sampling"
  absl::Span<const Flag> flags;
};

struct CommandSpec {
  std::string_view name;         // "generate"; empty: words within a flag's value
  std::string_view summary;      // one line, for the list of commands
  std::string_view positional;   // "[TEXT]"; empty: the command takes none
  std::string_view description;  // a paragraph
  std::vector<FlagGroup> groups;
  std::vector<std::string_view> examples;  // whole command lines
};

// The sources of flags besides the command line. Tests replace them.
struct FlagSources {
  std::function<std::optional<std::string>(const std::string&)> environment;
  std::function<absl::StatusOr<std::string>(const std::string&)> read_file;
  std::vector<std::string> variables = {};  // names of all that `environment` has

  // Returns this process's environment and files; a config file is at most 1 MiB.
  static FlagSources Process();
};

struct IntRange {
  int64_t min = 0, max = std::numeric_limits<int32_t>::max();
};

// Holds the values of one command's flags and its positionals. Getters must name a flag of the
// command. Errors are INVALID_ARGUMENT and name the flag the way it was given:
// `--port: "abc", expected an integer in 0..65535`, or `LOWKEY_PORT: ...`, or `file:3: port: ...`.
class FlagValues {
 public:
  struct Value {
    std::vector<std::string> texts;
    std::string origin;    // of the last text: "--port", "LOWKEY_PORT", "file:3: port"
    bool is_given = true;  // false: the flag's default
  };

  bool IsGiven(std::string_view name) const;
  bool Has(std::string_view name) const;  // whether it is given or has a default

  // Returns the text; empty when the flag has none.
  std::string Text(std::string_view name) const;
  std::vector<std::string> Texts(std::string_view name) const;

  // The numbers are absent when the flag is not given and has no default.
  absl::StatusOr<std::optional<int64_t>> Int(std::string_view name, int64_t min, int64_t max) const;
  absl::StatusOr<std::optional<double>> Number(std::string_view name) const;
  absl::StatusOr<std::optional<uint64_t>> Seed(std::string_view name) const;
  // Takes "1048576", "512K", "512M", "2G", with or without "iB" or "B": powers of 1,024.
  absl::StatusOr<std::optional<int64_t>> Bytes(std::string_view name) const;
  // Takes "30", "30s", "500ms", "2m": seconds unless the text says otherwise; at most a day.
  absl::StatusOr<std::optional<double>> Seconds(std::string_view name) const;
  // Set `to`, which may be optional, to the flag's value if the flag has one; the same errors.
  template <typename T>
  absl::Status ReadInt(std::string_view name, IntRange range, T& to) const {
    return Set(Int(name, range.min, range.max), to);
  }
  template <typename T>
  absl::Status ReadNumber(std::string_view name, T& to) const {
    return Set(Number(name), to);
  }
  absl::Status ReadSeconds(std::string_view name, absl::Duration& to) const;

  // Takes "5:-100,17:2.5": token ids and numbers.
  absl::StatusOr<std::vector<std::pair<int32_t, float>>> IdBiases(std::string_view name) const;
  bool Switch(std::string_view name) const;

  // Returns INVALID_ARGUMENT with the flag's origin, its value and what was expected.
  absl::Status Error(std::string_view name, std::string_view expected) const;
  // Returns the Error of the first of these flags, whose values are files, that has no value.
  absl::Status RequireFiles(std::initializer_list<std::string_view> names) const;
  // Returns the Error of the first of these flags on the command line, where nothing would read it.
  // Variables and files may set it for other commands.
  absl::Status RequireNone(absl::Span<const std::string_view> names,
                           std::string_view expected) const;

  const std::vector<std::string>& positional() const { return positional_; }
  bool wants_help() const { return wants_help_; }

 private:
  friend class FlagParser;

  template <typename From, typename To>
  static absl::Status Set(const absl::StatusOr<std::optional<From>>& from, To& to) {
    if (from.ok() && from->has_value()) to = static_cast<To>(**from);
    return from.status();
  }
  template <typename From, typename To>
  static absl::Status Set(const absl::StatusOr<std::optional<From>>& from, std::optional<To>& to) {
    return from.ok() && from->has_value() ? Set(from, to.emplace()) : from.status();
  }
  const Value* Find(std::string_view name) const;

  absl::flat_hash_map<std::string, Value> values_;
  std::vector<std::string> positional_;
  bool wants_help_ = false;
};

// Reads `arguments` (after the command's name) for `spec`. Precedence: command line, environment,
// config file (--config or LOWKEY_CONFIG), default. `known_flags` are the names of every command's
// flags: one of them in a config file is not an error for a command that lacks it.
// INVALID_ARGUMENT for an unknown flag (with a suggestion), a missing value, an empty path, an
// unexpected positional, a malformed config line; read_file's error for the config file.
absl::StatusOr<FlagValues> ParseFlags(const CommandSpec& spec,
                                      absl::Span<const std::string> arguments,
                                      absl::Span<const std::string_view> known_flags,
                                      const FlagSources& sources);

// Returns "LOWKEY_MAX_NEW_TOKENS" for "max-new-tokens".
std::string EnvironmentName(std::string_view flag_name);

// Returns whether the value is a path: shells complete it with files, and it must not be empty.
bool TakesPath(const Flag& flag);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_FLAGS_H_

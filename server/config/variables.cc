#include "server/config/variables.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "server/config/flags.h"
#include "server/config/suggestions.h"

namespace lowkey {
namespace {

constexpr std::string_view kPrefix = "LOWKEY_";

// Variables that are read though no flag is called so.
constexpr std::string_view kOtherVariables[] = {
    "LOWKEY_CUDA_ATTENTION", "LOWKEY_CUDA_LIBRARY", "LOWKEY_CUDA_PRODUCTS", "LOWKEY_ISA",
    "LOWKEY_TOKEN",
    // The tests read these, and their processes inherit them.
    "LOWKEY_BAD_REQUESTS", "LOWKEY_KILLED_CLIENTS", "LOWKEY_SCHEMA_SET_MODEL",
    "LOWKEY_SCHEMA_SET_SIZE", "LOWKEY_SCHEMA_SET_TEXTS", "LOWKEY_SMOLLM2", "LOWKEY_SOURCE_DIR",
    "LOWKEY_SYSROOT", "LOWKEY_TEST_DEVICE"};

// Kubernetes sets such variables in pods beside a service named lowkey.
constexpr std::string_view kServicePrefixes[] = {"LOWKEY_PORT_", "LOWKEY_SERVICE_"};

bool IsRead(std::string_view variable, absl::Span<const std::string_view> known_flags) {
  return std::any_of(known_flags.begin(), known_flags.end(),
                     [&](std::string_view flag) { return EnvironmentName(flag) == variable; }) ||
         std::find(std::begin(kOtherVariables), std::end(kOtherVariables), variable) !=
             std::end(kOtherVariables) ||
         std::any_of(std::begin(kServicePrefixes), std::end(kServicePrefixes),
                     [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

}  // namespace

std::vector<std::string> UnknownVariables(absl::Span<const std::string> variables,
                                          absl::Span<const std::string_view> command_flags,
                                          absl::Span<const std::string_view> known_flags) {
  std::vector<std::string> lines;
  for (const std::string& variable : variables) {
    if (!variable.starts_with(kPrefix) || IsRead(variable, known_flags)) continue;
    const std::string_view name = std::string_view(variable).substr(kPrefix.size());
    std::optional<std::string_view> nearest = NearestFlag(name, command_flags);
    if (!nearest.has_value()) nearest = NearestFlag(name, known_flags);
    std::string& line =
        lines.emplace_back(absl::StrCat(variable, ": ignored, as no flag is called so"));
    if (nearest.has_value()) line += DidYouMean(EnvironmentName(*nearest), "");
  }
  return lines;
}

}  // namespace lowkey

// Implements `lowkey version`.
#include "server/version.h"

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/kernels/isa.h"
#include "server/all_commands.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {
namespace {

// CMake sets these macros for this file.
constexpr char kBuildType[] = LOWKEY_BUILD_TYPE;
constexpr char kCompiler[] = LOWKEY_COMPILER;
constexpr char kProcessor[] = LOWKEY_PROCESSOR;
constexpr char kSanitizers[] = LOWKEY_SANITIZERS;
constexpr bool kHasCuda = LOWKEY_HAS_CUDA;
constexpr char kLibraries[] = LOWKEY_LIBRARIES;  // "gRPC 1.51.1,protobuf 3.21.12"

void PrintJson() {
  nlohmann::ordered_json json = {{"version", std::string(kVersion)},
                                 {"commit", std::string(kCommit)},
                                 {"build_type", kBuildType},
                                 {"compiler", kCompiler},
                                 {"processor", kProcessor},
                                 {"instruction_set", std::string(Kernels().name)},
                                 {"instruction_sets", AvailableIsas()},
                                 {"cuda", kHasCuda},
                                 {"sanitizers", kSanitizers}};
  for (const auto library : absl::StrSplit(kLibraries, ',')) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(library, ' ');
    json["libraries"][parts.first] = parts.second;
  }
  std::printf("%s\n", JsonLine(json).c_str());
}

absl::Status RunVersion(const FlagValues& flags) {
  if (flags.Switch("json")) {
    PrintJson();
    return absl::OkStatus();
  }
  const std::string sets =
      absl::StrCat(std::string(Kernels().name), ", of ", absl::StrJoin(AvailableIsas(), ", "));
  const std::string rows =
      AlignedRows({{"commit", std::string(kCommit)},
                   {"build", absl::StrCat(kBuildType, ", ", kCompiler, ", ", kProcessor)},
                   {"instruction set", sets},
                   {"cuda", kHasCuda ? "yes" : "no"},
                   {"sanitizers", kSanitizers},
                   {"libraries", absl::StrReplaceAll(kLibraries, {{",", ", "}})}},
                  StyleOf(stdout));
  std::printf("lowkey %s\n%s", kVersion, rows.c_str());
  return absl::OkStatus();
}

}  // namespace

Command VersionCommand() {
  Command command("version", "print the version and how it was built", RunVersion);
  command.spec.description =
      "Prints the version of this program, the commit that it was built from, the build's options, "
      "the instruction set that this machine computes with and those that it could (LOWKEY_ISA), "
      "and the libraries' versions at build time.";
  command.spec.groups = {{"General", GeneralFlags()}};
  command.spec.examples = {"lowkey version", "lowkey version --json"};
  return command;
}

}  // namespace lowkey

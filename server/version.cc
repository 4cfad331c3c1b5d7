// lowkey version.
#include "server/version.h"

#include <cstdio>

#include "server/commands.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"

namespace lowkey {
namespace {

absl::Status RunVersion(const FlagValues& flags) {
  if (flags.Switch("json")) {
    std::printf("{\"version\":\"%s\"}\n", kVersion);
  } else {
    std::printf("lowkey %s\n", kVersion);
  }
  return absl::OkStatus();
}

}  // namespace

Command VersionCommand() {
  Command command;
  command.spec.name = "version";
  command.spec.summary = "print the version";
  command.spec.description = "Prints the version of this program.";
  command.spec.groups = {{"General", GeneralFlags()}};
  command.spec.examples = {"lowkey version"};
  command.run = RunVersion;
  return command;
}

}  // namespace lowkey

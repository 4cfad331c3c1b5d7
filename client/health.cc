// lowkey health: asks grpc.health.v1, for container health checks.
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/connection_flags.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"

namespace lowkey {
namespace {

constexpr Flag kHealthFlags[] = {
    {"service", "NAME", "", "one service, such as lowkey.v1.Generation [the whole server]"},
    {"timeout", "TIME", "5", "how long to wait for the answer"},
};

absl::Status RunHealth(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(const std::optional<double> timeout, flags.Seconds("timeout"));
  LK_ASSIGN_OR_RETURN(const ConnectOptions connection, ReadConnection(flags));
  const std::string& address = connection.address;
  Client client(connection);
  const absl::Status status =
      client.CheckHealth(flags.Text("service"), SteadyNow() + absl::Seconds(timeout.value_or(0)));
  if (flags.Switch("json")) {
    std::printf("{\"server\":%s,\"serving\":%s}\n", JsonString(address).c_str(),
                status.ok() ? "true" : "false");
  } else if (status.ok()) {
    std::printf("%s: SERVING\n", address.c_str());
  }
  // The exit code is 1 for every answer except SERVING.
  if (status.ok()) return status;
  if (absl::IsDeadlineExceeded(status)) {
    return absl::UnavailableError(
        absl::StrCat(address, ": no answer within --timeout ", flags.Text("timeout")));
  }
  if (!absl::IsNotFound(status)) return absl::UnavailableError(status.message());
  return absl::UnavailableError(
      absl::StrCat(address, ": no service \"", flags.Text("service"), "\""));
}

}  // namespace

Command HealthCommand() {
  Command command("health", "ask a server whether it serves (exit code 0: yes)", RunHealth);
  command.spec.description =
      "Asks a server's grpc.health.v1. The exit code is 0 when it answers SERVING, 1 otherwise: "
      "fit for a container's health check.";
  command.spec.groups = {
      {"Server", ClientFlags()}, {"Question", kHealthFlags}, {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey health",
      "lowkey health --server 10.0.0.5:50051 --timeout 2s",
  };
  return command;
}

}  // namespace lowkey

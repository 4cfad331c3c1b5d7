#include "server/config/calibration_flags.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/calibration/principal_code_file.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {
namespace {

constexpr Flag kCalibrationFlags[] = {
    {"calibration", "FILE", "",
     "for --prefix-storage and --basis calibrated, as lowkey calibrate wrote it; none: do without "
     "[the file beside the model, if there is one]"},
};

absl::Status Uncalibrated(const std::string& value) {
  return absl::FailedPreconditionError(absl::StrCat(
      value, ", expected a calibration beside the model: lowkey calibrate --model makes it"));
}

}  // namespace

absl::Span<const Flag> CalibrationFlags() { return kCalibrationFlags; }

absl::Status ReadCalibration(const FlagValues& flags, const OpenedModel& model,
                             const Checkpoint& weights, EngineOptions& options) {
  const bool is_named = flags.IsGiven("calibration");
  const std::string path =
      is_named ? flags.Text("calibration") : PrincipalCodePath(model.files().weights);
  std::error_code error;
  if (is_named ? path == "none" : !std::filesystem::exists(path, error)) return absl::OkStatus();
  auto codes = ReadPrincipalCodes(path, weights);
  if (!codes.ok() && !is_named) {
    const std::string fault(codes.status().message());
    std::fprintf(stderr, "warning: without calibration: %s\n", TerminalSafe(fault).c_str());
    return absl::OkStatus();
  }
  const absl::Status status = Prefixed("--calibration", codes.status());
  if (absl::IsInvalidArgument(status)) return absl::FailedPreconditionError(status.message());
  LK_RETURN_IF_ERROR(status);
  options.codes = *std::move(codes);
  return absl::OkStatus();
}

absl::Status CheckCalibrated(const AttentionOptions& attention, const EngineOptions& options) {
  if (attention.mechanism == Mechanism::kAtp && attention.atp.basis == AtpBasis::kCalibrated &&
      options.codes == nullptr) {
    return Uncalibrated("--basis: calibrated");
  }
  const PrefixStorage& storage = attention.standard.prefix_storage;
  if (attention.mechanism != Mechanism::kStandard || storage.is_exact()) return absl::OkStatus();
  const std::string value = absl::StrCat("--prefix-storage: ", PrefixStorageString(storage));
  if (options.device != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(value, ", expected exact with --device"));
  }
  return options.codes != nullptr ? absl::OkStatus() : Uncalibrated(value);
}

absl::Status CheckAttendable(const AttentionOptions& attention, const Engine& engine) {
  const absl::Status status = engine.BytesByLength(attention, {}).status();
  if (status.ok()) return absl::OkStatus();
  const std::string name(MechanismName(attention.mechanism));
  std::string available;
  bool is_available = false;
  for (const MechanismInfo& info : engine.mechanisms()) {
    absl::StrAppend(&available, available.empty() ? "" : ", ", std::string(MechanismName(info.id)));
    is_available = is_available || info.id == attention.mechanism;
  }
  if (!is_available) {
    return absl::FailedPreconditionError(
        absl::StrCat("--attention: ", name, " cannot run on this model, expected ", available));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("--attention: ", name, ": ", std::string(status.message())));
}

}  // namespace lowkey

#include "server/config/calibration_flags.h"

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/calibration/prefix_code_file.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {
namespace {

constexpr Flag kCalibrationFlags[] = {
    {"calibration", "FILE", "",
     "for --prefix-storage calibrated, as lowkey calibrate wrote it; none: do without [the file "
     "beside the model, if there is one]"},
};

}  // namespace

absl::Span<const Flag> CalibrationFlags() { return kCalibrationFlags; }

absl::Status ReadCalibration(const FlagValues& flags, const OpenedModel& model,
                             const Checkpoint& weights, EngineOptions& options) {
  const bool is_named = flags.IsGiven("calibration");
  const std::string path = is_named ? flags.Text("calibration") : PrefixCodePath(model.path());
  std::error_code error;
  if (is_named ? path == "none" : !std::filesystem::exists(path, error)) return absl::OkStatus();
  auto codes = ReadPrefixCodes(path, weights);
  if (!codes.ok() && !is_named) {
    const std::string fault(codes.status().message());
    std::fprintf(stderr, "warning: without calibration: %s\n", TerminalSafe(fault).c_str());
    return absl::OkStatus();
  }
  if (absl::IsInvalidArgument(codes.status())) {
    return absl::FailedPreconditionError(codes.status().message());
  }
  LK_RETURN_IF_ERROR(codes.status());
  options.prefix_codes = *std::move(codes);
  return absl::OkStatus();
}

absl::Status CheckCalibrated(const AttentionOptions& attention, const EngineOptions& options) {
  const PrefixStorage& storage = attention.standard.prefix_storage;
  if (attention.mechanism != Mechanism::kStandard || storage.is_exact()) return absl::OkStatus();
  const std::string value = absl::StrCat("--prefix-storage: ", PrefixStorageString(storage));
  if (options.device != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(value, ", expected exact with --device"));
  }
  if (options.prefix_codes != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      value, ", expected a calibration beside the model: lowkey calibrate --model makes it"));
}

}  // namespace lowkey

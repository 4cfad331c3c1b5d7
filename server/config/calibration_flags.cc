#include "server/config/calibration_flags.h"

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/calibration/prefix_code_file.h"

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
  std::string path = PrefixCodePath(model.path());
  if (flags.IsGiven("calibration")) {
    path = flags.Text("calibration");
    if (path == "none") return absl::OkStatus();
  } else {
    std::error_code error;
    if (!std::filesystem::exists(path, error)) return absl::OkStatus();
  }
  auto codes = ReadPrefixCodes(path, weights);
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

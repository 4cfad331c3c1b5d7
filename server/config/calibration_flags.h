#ifndef LOWKEY_SERVER_CONFIG_CALIBRATION_FLAGS_H_
#define LOWKEY_SERVER_CONFIG_CALIBRATION_FLAGS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"
#include "server/config/flags.h"
#include "server/config/opened_model.h"

namespace lowkey {

// The flag that names the calibration of a model's prefix codes.
absl::Span<const Flag> CalibrationFlags();

// Sets options.codes to the calibration that --calibration names, or to the one that lies
// beside the model, if there is one. Of the first, ReadPrincipalCodes's errors after the
// flag's name, but never INVALID_ARGUMENT, which says that a flag is wrong: FAILED_PRECONDITION for
// a malformed file. The
// other, which nobody asked for, is left out with a warning on standard error.
absl::Status ReadCalibration(const FlagValues& flags, const OpenedModel& model,
                             const Checkpoint& weights, EngineOptions& options);

// Returns FAILED_PRECONDITION when the attention needs a calibration that the options lack, or that
// their device does not use.
absl::Status CheckCalibrated(const AttentionOptions& attention, const EngineOptions& options);

// Returns FAILED_PRECONDITION when requests cannot run with these options on the engine's model,
// for lack of weights or because of the model's shape. The message names --attention.
absl::Status CheckAttendable(const AttentionOptions& attention, const Engine& engine);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_CALIBRATION_FLAGS_H_

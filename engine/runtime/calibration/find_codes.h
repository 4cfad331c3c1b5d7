#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_CODES_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_CODES_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/attention/principal_codes.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/calibration/read_texts.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// Runs texts of token ids through the model and finds the codes of its keys and values
// (docs/calibration.md). A text's first 4 tokens do not count. `engine` has threads and dtype.
// MakeTextReader's errors, and FAILED_PRECONDITION: a model without RoPE over an even key_dim, too
// few tokens, or keys, values or queries that are not finite.
absl::StatusOr<PrincipalCodes> FindPrincipalCodes(std::shared_ptr<const Checkpoint> checkpoint,
                                                  TokenTexts texts, const EngineOptions& engine,
                                                  const CalibrationProgress& progress);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_CODES_H_

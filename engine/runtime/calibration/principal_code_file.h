#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_PRINCIPAL_CODE_FILE_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_PRINCIPAL_CODE_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/attention/principal_codes.h"
#include "engine/loader/checkpoint.h"

namespace lowkey {

// Returns where the calibration of a model's weights (ModelFiles) lies unless told otherwise:
// principal.safetensors in a directory, NAME.principal.safetensors beside NAME.gguf.
std::string PrincipalCodePath(const std::string& weights);

// Returns a number that tells models apart: a hash of the shapes and types of all tensors and of
// sixteen pieces of each one's bytes. It notices another model and other weights of the same model;
// it is no protection against somebody who looks for a collision.
uint64_t WeightsFingerprint(const Checkpoint& checkpoint);

// Writes the codes as safetensors, for the model of this fingerprint: aside, then renamed, so that
// readers find the old file or the new one. SafetensorsWriter's errors; UNAVAILABLE when the file
// cannot be renamed.
absl::Status WritePrincipalCodes(const std::string& path, const PrincipalCodes& codes,
                                 uint64_t fingerprint);

// Reads the codes of a model. Nothing in the file is trusted.
//   NOT_FOUND           there is no such file
//   FAILED_PRECONDITION the file is another model's, or of another format
//   INVALID_ARGUMENT    it is malformed: a tensor is missing or misshapen, a number not finite or
//                       variances out of order
absl::StatusOr<std::shared_ptr<const PrincipalCodes>> ReadPrincipalCodes(
    const std::string& path, const Checkpoint& checkpoint);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_PRINCIPAL_CODE_FILE_H_

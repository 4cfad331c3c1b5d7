#ifndef LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_MODEL_SPACE_H_
#define LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_MODEL_SPACE_H_

#include <string>

#include "engine/loader/checkpoint.h"
#include "engine/runtime/model_runner.h"

namespace lowkey {

// Returns what the cached keys and values of mechanism standard follow from beside tokens and options:
// the program, its kernels, the weights and the calibration. Two engines whose spaces are equal
// compute the same bits.
std::string ModelSpace(const Checkpoint& checkpoint, const ModelRunner& runner,
                       const EngineOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_MODEL_SPACE_H_

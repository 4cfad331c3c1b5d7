#ifndef LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_MODEL_SPACE_H_
#define LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_MODEL_SPACE_H_

#include <string>

#include "engine/loader/checkpoint.h"
#include "engine/runtime/model_runner.h"

namespace lowkey {

// Returns a name for what the cached keys and values of mechanism standard follow from beside
// tokens and options: the program, its kernels, the model and the calibration. Two engines of one
// name compute the same bits. Weights are told apart by their files' names, sizes and times of
// modification and by samples of their bytes, so that a large model need not be read whole.
std::string ModelSpace(const Checkpoint& checkpoint, const ModelRunner& runner,
                       const EngineOptions& options);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_MODEL_SPACE_H_

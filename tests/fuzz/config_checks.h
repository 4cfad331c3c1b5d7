#ifndef LOWKEY_TESTS_FUZZ_CONFIG_CHECKS_H_
#define LOWKEY_TESTS_FUZZ_CONFIG_CHECKS_H_

#include "engine/config/model_config.h"

namespace lowkey {

// Dies unless `config`, as a parser accepted it, has only sizes that the engine can work with.
void CheckConfig(const ModelConfig& config);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_FUZZ_CONFIG_CHECKS_H_

#ifndef LOWKEY_ENGINE_BASE_MACHINE_H_
#define LOWKEY_ENGINE_BASE_MACHINE_H_

#include <string>

namespace lowkey {

// Returns the processor's name, where the system tells it, and its cores:
// "AMD EPYC 7713 64-Core Processor, 2 cores".
std::string MachineName();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_MACHINE_H_

#ifndef LOWKEY_ENGINE_RUNTIME_MEMORY_H_
#define LOWKEY_ENGINE_RUNTIME_MEMORY_H_

#include <cstdint>

namespace lowkey {

// Bytes that this process may still take: the machine's available memory, or what its control group
// leaves if less.
int64_t AvailableMemoryBytes();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_MEMORY_H_

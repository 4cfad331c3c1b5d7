#ifndef LOWKEY_ENGINE_BASE_MACHINE_H_
#define LOWKEY_ENGINE_BASE_MACHINE_H_

#include <cstdint>
#include <string>

namespace lowkey {

// Returns the processor's name, where the system tells it, and its cores:
// "AMD EPYC 7713 64-Core Processor, 2 cores".
std::string MachineName();

// Returns the cores that this process may keep busy, at least 1: those that it may run on, or, if
// fewer, the tightest quota of its control groups (version 1 or 2, any level), rounded up. More
// threads than a quota pays for would all be stopped for the rest of each period.
// `root` stands before /proc and /sys, for tests.
int AvailableCores(const std::string& root = "");

// Returns the bytes that this process may still take without swapping: the machine's available
// memory, or what the tightest limit of its control groups (version 1 or 2, any level) leaves if
// less. Cached files count as available, because the system drops them. 1 GiB where the system
// does not tell. `root` stands before /proc and /sys, for tests.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_MACHINE_H_

#ifndef LOWKEY_ENGINE_KERNELS_ISA_H_
#define LOWKEY_ENGINE_KERNELS_ISA_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// Every kernel table that this CPU runs: two portable ones first (the second, "portable_bf16",
// rounds activations like avx512_bf16 and shares its source), then from narrow to wide.
std::vector<const KernelTable*> AvailableKernels();

// The names of those tables, which LOWKEY_ISA may have.
std::vector<std::string> AvailableIsas();

// Checks the environment variable LOWKEY_ISA, which names the table of Kernels(); empty is unset.
// INVALID_ARGUMENT where its value is no instruction set, or one that this CPU lacks.
absl::Status CheckIsa();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_ISA_H_

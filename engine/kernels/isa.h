#ifndef LOWKEY_ENGINE_KERNELS_ISA_H_
#define LOWKEY_ENGINE_KERNELS_ISA_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// Every kernel table that this CPU runs: three portable ones first ("portable_bf16" rounds
// activations like avx512_bf16 and shares its source, "portable_amx" has amx's products of bf16 to
// the bit), then from narrow to wide.
std::vector<const KernelTable*> AvailableKernels();

// Returns which of the tables that AvailableKernels may return is used unless LOWKEY_ISA names one:
// the widest, but on Intel's processors not the one with a BF16 dot product and no matrix unit.
// There the instruction does half of what fp32's does in a cycle (prefill of a 135M model: 780
// tokens/s against 1,143), on AMD's twice as much (110M: 1,840 against 1,080). The choice decides
// bits, so it is no timing.
const KernelTable& BestKernels(absl::Span<const KernelTable* const> available, bool is_intel);

// The names of those tables, which LOWKEY_ISA may have.
std::vector<std::string> AvailableIsas();

// Checks the environment variable LOWKEY_ISA, which names the table of Kernels(); empty is unset.
// INVALID_ARGUMENT where its value is no instruction set, or one that this CPU lacks.
absl::Status CheckIsa();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_ISA_H_

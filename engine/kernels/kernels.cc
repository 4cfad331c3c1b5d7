#include "engine/kernels/kernels.h"

#include <cstdlib>

#include "engine/kernels/cpu/tables.h"

namespace lowkey {

std::vector<const KernelTable*> AvailableKernels() {
  std::vector<const KernelTable*> out = {&cpu::kPortableTable, &cpu::kPortableBf16Table};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    out.push_back(&cpu::kAvx2Table);
  }
  if (__builtin_cpu_supports("avx512f")) out.push_back(&cpu::kAvx512Table);
  if (__builtin_cpu_supports("avx512bf16")) out.push_back(&cpu::kAvx512Bf16Table);
  return out;
}

const KernelTable& Kernels() {
  static const KernelTable* const table = [] {
    const std::vector<const KernelTable*> available = AvailableKernels();
    const char* wanted = std::getenv("LOWKEY_ISA");
    for (const KernelTable* t : available) {
      if (wanted != nullptr && t->name == wanted) return t;
    }
    // Without AVX2 the plain table, not the one that imitates a BF16 dot product.
    return available.size() > 2 ? available.back() : available.front();
  }();
  return *table;
}

}  // namespace lowkey

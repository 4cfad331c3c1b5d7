#ifndef LOWKEY_ENGINE_KERNELS_CPU_TABLES_H_
#define LOWKEY_ENGINE_KERNELS_CPU_TABLES_H_

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

extern const KernelTable kPortableTable;
extern const KernelTable kPortableBf16Table;
extern const KernelTable kAvx2Table;        // needs AVX2 and FMA
extern const KernelTable kAvx512Table;      // needs AVX-512F
extern const KernelTable kAvx512Bf16Table;  // needs AVX-512F and AVX512-BF16

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_TABLES_H_

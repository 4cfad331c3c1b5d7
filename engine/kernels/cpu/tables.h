#ifndef LOWKEY_ENGINE_KERNELS_CPU_TABLES_H_
#define LOWKEY_ENGINE_KERNELS_CPU_TABLES_H_

#include "engine/kernels/kernels.h"

namespace lowkey::cpu {

extern const KernelTable kPortableTable;
extern const KernelTable kPortableBf16Table;
extern const KernelTable kPortableAmxTable;  // kAmxTable's products of bf16, to the bit
extern const KernelTable kAvx2Table;         // needs AVX2, FMA and F16C
extern const KernelTable kAvx512Table;       // needs AVX-512F and AVX-512BW
extern const KernelTable kAvx512VnniTable;   // needs AVX512-VNNI too, and has kAvx512Table's bits
extern const KernelTable kAvx512Bf16Table;   // needs AVX512-BF16 too
extern const KernelTable kAmxTable;  // needs AMX-TILE, -BF16, -INT8 and their permission too

// These are for 64-bit Arm.
extern const KernelTable kNeonTable;
extern const KernelTable kNeonDotTable;   // needs FEAT_DotProd, and has kNeonTable's bits
extern const KernelTable kNeonBf16Table;  // needs FEAT_BF16 too

}  // namespace lowkey::cpu

#endif  // LOWKEY_ENGINE_KERNELS_CPU_TABLES_H_

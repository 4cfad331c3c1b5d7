#include "engine/kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "engine/kernels/cpu/tables.h"
#include "engine/kernels/isa.h"

namespace lowkey {
namespace {

// The names are known on every processor, so that a set that this CPU lacks is told from a
// misspelled name.
constexpr const char* kKnownIsas[] = {"portable", "portable_bf16", "portable_amx", "avx2",
                                      "avx512",   "avx512_vnni",   "avx512_bf16",  "amx",
                                      "neon",     "neon_dot",      "neon_bf16"};

std::string Quoted(const std::string& name) { return absl::StrCat("LOWKEY_ISA: \"", name, "\""); }

bool IsIntel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

#if defined(__x86_64__)
// clang 14's __builtin_cpu_supports does not know this one.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// Returns whether the processor has AMX's tiles and their products, and asks the system for the
// permission to use them, which the whole process then has (Linux 5.16). A sandbox may refuse it.
bool MayUseTiles() {
  constexpr unsigned kAmx = 1u << 22 | 1u << 24 | 1u << 25;  // BF16, TILE, INT8
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAmx) != kAmx) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

absl::StatusOr<const KernelTable*> ChooseKernels() {
  const std::vector<const KernelTable*> available = AvailableKernels();
  const char* variable = std::getenv("LOWKEY_ISA");
  const std::string wanted = variable == nullptr ? "" : variable;
  if (wanted.empty()) return &BestKernels(available, IsIntel());
  for (const KernelTable* table : available) {
    if (table->name == wanted) return table;
  }
  if (absl::c_linear_search(kKnownIsas, wanted)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(wanted), ", this CPU has ", absl::StrJoin(AvailableIsas(), ", ")));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(wanted), ", expected one of ", absl::StrJoin(kKnownIsas, ", ")));
}

}  // namespace

std::vector<const KernelTable*> AvailableKernels() {
  std::vector<const KernelTable*> out = {&cpu::kPortableTable, &cpu::kPortableBf16Table,
                                         &cpu::kPortableAmxTable};
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !HasF16c()) return out;
  out.push_back(&cpu::kAvx2Table);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")) return out;
  out.push_back(&cpu::kAvx512Table);
  if (!__builtin_cpu_supports("avx512vnni")) return out;
  out.push_back(&cpu::kAvx512VnniTable);
  if (!__builtin_cpu_supports("avx512bf16")) return out;
  out.push_back(&cpu::kAvx512Bf16Table);
  static const bool may_use_tiles = MayUseTiles();
  if (may_use_tiles) out.push_back(&cpu::kAmxTable);
#elif defined(__aarch64__)
  constexpr unsigned long kDotProducts = 1ul << 20, kBf16 = 1ul << 14;  // of AT_HWCAP and AT_HWCAP2
  out.push_back(&cpu::kNeonTable);
  if ((getauxval(AT_HWCAP) & kDotProducts) == 0) return out;
  out.push_back(&cpu::kNeonDotTable);
  if ((getauxval(AT_HWCAP2) & kBf16) != 0) out.push_back(&cpu::kNeonBf16Table);
#endif
  return out;
}

const KernelTable& BestKernels(absl::Span<const KernelTable* const> available, bool is_intel) {
  // A processor that has no table of its own takes the plain one, not one that imitates another.
  if (available.size() <= 3) return *available.front();
  const KernelTable& widest = *available.back();
  const bool is_slow = is_intel && widest.rounds_activations && !widest.has_matrix_unit;
  return *available[available.size() - (is_slow ? 2 : 1)];
}

std::vector<std::string> AvailableIsas() {
  std::vector<std::string> names;
  for (const KernelTable* table : AvailableKernels()) names.emplace_back(table->name);
  return names;
}

absl::Status CheckIsa() { return ChooseKernels().status(); }

const KernelTable& Kernels() {
  static const KernelTable* const table = [] {
    const absl::StatusOr<const KernelTable*> chosen = ChooseKernels();
    if (chosen.ok()) return *chosen;
    std::fprintf(stderr, "%s\n", std::string(chosen.status().message()).c_str());
    std::fflush(nullptr);
    std::_Exit(2);  // other threads may be running
  }();
  return *table;
}

}  // namespace lowkey

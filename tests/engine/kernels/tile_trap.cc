#include "tests/engine/kernels/tile_trap.h"

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace lowkey {
namespace {

struct Tile {
  int rows = 0, row_bytes = 0;
  uint8_t bytes[16][64] = {};
};
thread_local Tile tiles[8];
thread_local bool is_configured = false;
std::atomic<int64_t> count = 0;
struct sigaction before;

// Instruction holds the fields of an encoding (Intel's manual, volume 2, chapter 2).
struct Instruction {
  uint8_t opcode = 0;
  int prefix = 0;  // 0: none, 1: 66, 2: F3, 3: F2
  int reg = 0, rm = 0, vvvv = 0;
  bool has_memory = false;
  uint8_t* address = nullptr;  // of its memory; of tile loads without the index
  int64_t stride = 0;          // the index of tile loads, scaled
  int length = 0;
};

int64_t RegisterOf(const ucontext_t& context, int number) {
  constexpr int kOrder[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
  return context.uc_mcontext.gregs[kOrder[number]];
}

int64_t ReadDisplacement(const uint8_t* p, int n_bytes) {
  if (n_bytes == 1) return static_cast<int8_t>(*p);
  int32_t value = 0;
  if (n_bytes == 4) std::memcpy(&value, p, 4);
  return value;
}

// Takes a VEX instruction of three bytes of prefix apart.
bool Decode(const ucontext_t& context, Instruction& out) {
  const auto* p = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  if (p[0] != 0xc4 || (p[1] & 0x1f) != 2) return false;  // the map 0F38
  const int r = (p[1] & 0x80) != 0 ? 0 : 8, x = (p[1] & 0x40) != 0 ? 0 : 8,
            b = (p[1] & 0x20) != 0 ? 0 : 8;
  out.vvvv = ~(p[2] >> 3) & 15;
  out.prefix = p[2] & 3;
  out.opcode = p[3];
  const int mode = p[4] >> 6;
  out.reg = (p[4] >> 3 & 7) + r;
  out.rm = (p[4] & 7) + b;
  out.length = 5;
  out.has_memory = mode != 3;
  if (!out.has_memory) return true;
  int64_t base;
  const bool is_rip_relative = mode == 0 && (p[4] & 7) == 5;
  int n_displacement = mode == 1 ? 1 : mode == 2 || is_rip_relative ? 4 : 0;
  if ((p[4] & 7) == 4) {
    const uint8_t sib = p[out.length++];
    const int index = (sib >> 3 & 7) + x;
    if (index != 4) out.stride = RegisterOf(context, index) << (sib >> 6);
    const bool has_base = (sib & 7) != 5 || mode != 0;
    base = has_base ? RegisterOf(context, (sib & 7) + b) : 0;
    if (!has_base) n_displacement = 4;
  } else {
    base = is_rip_relative ? 0 : RegisterOf(context, out.rm);
  }
  base += ReadDisplacement(p + out.length, n_displacement);
  out.length += n_displacement;
  if (is_rip_relative) base += context.uc_mcontext.gregs[REG_RIP] + out.length;
  out.address = reinterpret_cast<uint8_t*>(base);
  return true;
}

bool LoadConfiguration(const uint8_t* from) {
  if (from[0] != 1) return false;  // the palette
  for (int t = 0; t < 8; ++t) {
    tiles[t] = {};
    uint16_t row_bytes;
    std::memcpy(&row_bytes, from + 16 + 2 * t, sizeof(row_bytes));
    tiles[t].row_bytes = row_bytes;
    tiles[t].rows = from[48 + t];
    if (tiles[t].row_bytes > 64 || tiles[t].rows > 16) return false;
  }
  return is_configured = true;
}

float Flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

template <class T>
T Read(const Tile& tile, int row, int index) {
  T value;
  std::memcpy(&value, tile.bytes[row] + index * sizeof(T), sizeof(T));
  return value;
}

float Widen(const Tile& tile, int row, int index) {
  const uint32_t bits = static_cast<uint32_t>(Read<uint16_t>(tile, row, index)) << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return Flush(x);
}

void DotPairs(Tile& sums, const Tile& a, const Tile& b) {
  for (int m = 0; m < sums.rows; ++m) {
    for (int n = 0; n < sums.row_bytes / 4; ++n) {
      float parts[2] = {0, 0};
      for (int k = 0; k < a.row_bytes / 4; ++k) {
        for (int half = 0; half < 2; ++half) {
          parts[half] =
              Flush(std::fmaf(Widen(a, m, 2 * k + half), Widen(b, k, 2 * n + half), parts[half]));
        }
      }
      const float sum = Flush(Flush(Read<float>(sums, m, n)) + Flush(parts[0] + parts[1]));
      std::memcpy(sums.bytes[m] + 4 * n, &sum, sizeof(sum));
    }
  }
}

template <class Left>
void DotBytes(Tile& sums, const Tile& a, const Tile& b) {
  for (int m = 0; m < sums.rows; ++m) {
    for (int n = 0; n < sums.row_bytes / 4; ++n) {
      auto sum = Read<int32_t>(sums, m, n);
      for (int k = 0; k < a.row_bytes; ++k) {
        sum += Read<Left>(a, m, k) * Read<int8_t>(b, k / 4, 4 * n + k % 4);
      }
      std::memcpy(sums.bytes[m] + 4 * n, &sum, sizeof(sum));
    }
  }
}

bool Execute(const Instruction& in) {
  constexpr int kNone = 0, k66 = 1, kF3 = 2, kF2 = 3;
  if (in.opcode == 0x49 && in.prefix == kNone && in.has_memory)
    return LoadConfiguration(in.address);
  if (!is_configured || in.reg > 7) return false;
  if (in.opcode == 0x49 && in.prefix == kNone) {  // tilerelease
    is_configured = false;
    return true;
  }
  Tile& tile = tiles[in.reg];
  if (in.opcode == 0x49 && in.prefix == kF2) {  // tilezero
    std::memset(tile.bytes, 0, sizeof(tile.bytes));
    return true;
  }
  if (in.opcode == 0x4b && in.prefix != kNone && in.has_memory) {
    const bool stores = in.prefix == kF3;  // 66 is a load with a hint
    if (!stores) std::memset(tile.bytes, 0, sizeof(tile.bytes));
    for (int row = 0; row < tile.rows; ++row) {
      uint8_t* at = in.address + row * in.stride;
      std::memcpy(stores ? at : tile.bytes[row], stores ? tile.bytes[row] : at,
                  static_cast<size_t>(tile.row_bytes));
    }
    return true;
  }
  if (in.has_memory || in.rm > 7 || in.vvvv > 7) return false;
  const Tile &a = tiles[in.rm], &b = tiles[in.vvvv];
  if (a.rows != tile.rows || 4 * b.rows != a.row_bytes || b.row_bytes != tile.row_bytes)
    return false;
  if (in.opcode == 0x5c && in.prefix == kF3) {
    DotPairs(tile, a, b);
  } else if (in.opcode == 0x5e && in.prefix == kF2) {
    DotBytes<int8_t>(tile, a, b);
  } else if (in.opcode == 0x5e && in.prefix == k66) {
    DotBytes<uint8_t>(tile, a, b);
  } else {
    return false;
  }
  return true;
}

void OnIllegalInstruction(int, siginfo_t*, void* opaque) {
  auto& context = *static_cast<ucontext_t*>(opaque);
  Instruction instruction;
  if (!Decode(context, instruction) || !Execute(instruction)) std::abort();
  ++count;
  context.uc_mcontext.gregs[REG_RIP] += instruction.length;
}

}  // namespace

TileTrap::TileTrap() {
  struct sigaction action = {};
  action.sa_sigaction = OnIllegalInstruction;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &before);
}

TileTrap::~TileTrap() { sigaction(SIGILL, &before, nullptr); }

int64_t TileTrap::n_executed() { return count; }

}  // namespace lowkey

#ifndef LOWKEY_TESTS_ENGINE_KERNELS_TILE_TRAP_H_
#define LOWKEY_TESTS_ENGINE_KERNELS_TILE_TRAP_H_

#include <cstdint>

namespace lowkey {

// Executes AMX's instructions on a processor without them: each raises a signal, whose handler does
// what Intel's manual says of it. So the very instructions of a kernel are tested, though slowly.
// Each thread has tiles of its own. Other instructions that a processor lacks end the process.
class TileTrap {
 public:
  TileTrap();
  ~TileTrap();
  TileTrap(const TileTrap&) = delete;
  TileTrap& operator=(const TileTrap&) = delete;

  // Returns how many instructions were executed so far.
  static int64_t n_executed();
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_KERNELS_TILE_TRAP_H_

// libFuzzer begins with a seed where it has no input yet.

#include <cstdint>
#include <cstring>

#include "tests/fuzz/gguf_seeds.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  constexpr size_t kHeaderBytes = 24;
  static const auto* const seeds = new std::vector<std::string>(lowkey::GgufSeeds());
  const std::string& chosen = (*seeds)[seed % seeds->size()];
  if (size >= kHeaderBytes || chosen.size() > max_size) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  std::memcpy(data, chosen.data(), chosen.size());
  return chosen.size();
}

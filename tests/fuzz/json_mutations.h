#ifndef LOWKEY_TESTS_FUZZ_JSON_MUTATIONS_H_
#define LOWKEY_TESTS_FUZZ_JSON_MUTATIONS_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lowkey {

inline void RunTarget(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

// Flips, removes, repeats and inserts bytes of JSON in the first `n` of them.
inline std::string MutateJson(std::string bytes, size_t n, std::mt19937& random) {
  for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
    const size_t at = random() % std::min(n, bytes.size());
    switch (random() % 4) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << random() % 8);
        break;
      case 1:
        bytes.erase(at, random() % 16);
        break;
      case 2:
        bytes.insert(at, bytes.substr(random() % std::min(n, bytes.size()), random() % 32));
        break;
      default:
        bytes.insert(at, 1, "0123456789-e.{}[],:\"\\"[random() % 21]);
    }
    if (bytes.empty()) bytes.push_back('{');
  }
  return bytes;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_FUZZ_JSON_MUTATIONS_H_

// The fuzz target over mutations of good inputs, always the same ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "engine/loader/gguf.h"
#include "tests/fuzz/gguf_seeds.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lowkey {
namespace {

// The input has a block of its own, so that a sanitizer sees a read past its end.
void RunTarget(const std::string& bytes) {
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

// Flips, removes, repeats and overwrites bytes, often with numbers that overflow something.
std::string Mutate(std::string bytes, std::mt19937& random) {
  constexpr uint64_t kNumbers[] = {0,          1,          4,           31,
                                   0xffffffff, 1ull << 32, 1ull << 61,  1ull << 62,
                                   1ull << 63, ~0ull,      ~0ull - 31u, 0x100000001ull};
  for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
    const size_t at = random() % bytes.size();
    switch (random() % 5) {
      case 0:
        bytes[at] ^= static_cast<char>(1 << random() % 8);
        break;
      case 1:
        bytes.erase(at, random() % 16);
        break;
      case 2:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 32));
        break;
      case 3:
        bytes[at] = static_cast<char>(random() % 48);  // a type, a count or a length
        break;
      default: {
        const uint64_t number = kNumbers[random() % std::size(kNumbers)];
        const size_t n = std::min<size_t>(random() % 2 == 0 ? 4 : 8, bytes.size() - at);
        std::memcpy(bytes.data() + at, &number, n);
      }
    }
    if (bytes.empty()) bytes.push_back('G');
  }
  return bytes;
}

TEST(GgufFuzzTest, AcceptsItsSeeds) {
  for (const std::string& seed : GgufSeeds()) {
    const auto index =
        ParseGguf({reinterpret_cast<const std::byte*>(seed.data()), seed.size()}, "seed");
    EXPECT_TRUE(index.ok()) << index.status();
    RunTarget(seed);
  }
  RunTarget("");
}

TEST(GgufFuzzTest, SurvivesTruncation) {
  for (const std::string& seed : GgufSeeds()) {
    for (size_t n = 0; n < seed.size(); ++n) RunTarget(seed.substr(0, n));
  }
}

TEST(GgufFuzzTest, SurvivesAFlippedBitInEveryByte) {
  std::mt19937 random(1);
  for (std::string seed : GgufSeeds()) {
    for (char& byte : seed) {
      const char mask = static_cast<char>(1 << random() % 8);
      byte ^= mask;
      RunTarget(seed);
      byte ^= mask;
    }
  }
}

TEST(GgufFuzzTest, SurvivesMutations) {
  std::mt19937 random(1);
  for (const std::string& seed : GgufSeeds()) {
    for (int i = 0; i < 10000; ++i) RunTarget(Mutate(seed, random));
  }
}

}  // namespace
}  // namespace lowkey

// The fuzz target over edits of a good file, always the same ones.

#include <gtest/gtest.h>

#include "tests/fuzz/json_mutations.h"

namespace lowkey {
namespace {

TEST(CalibrationFuzzTest, AcceptsItsSeed) { RunTarget(""); }

TEST(CalibrationFuzzTest, SurvivesTruncation) {
  for (int n = 0; n < 256; ++n) RunTarget(std::string(1, static_cast<char>(n)));
}

// Edits of the header, which is short, and of numbers: single bytes make huge ones and NaN.
TEST(CalibrationFuzzTest, SurvivesEdits) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    std::string edits;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      const uint32_t at = random() % (i % 2 == 0 ? 600 : 1u << 24);
      for (int shift = 0; shift < 24; shift += 8) edits.push_back(static_cast<char>(at >> shift));
      edits.push_back(static_cast<char>(random() % 3 == 0 ? 0x7f : random()));
    }
    RunTarget(edits);
  }
}

}  // namespace
}  // namespace lowkey

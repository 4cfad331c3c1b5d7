// The fuzz target over mutations of a good file, always the same ones.

#include <gtest/gtest.h>

#include "bench/random_model.h"
#include "engine/loader/safetensors.h"
#include "tests/fuzz/json_mutations.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

std::string Seed() {
  ModelConfig config = TinyConfig();
  config.n_layers = 1;
  const TinyModel model({.config = config});
  const std::string bytes = ReadFileOrDie(model.File("model.safetensors"));
  return bytes;
}

TEST(SafetensorsFuzzTest, AcceptsItsSeed) {
  const std::string seed = Seed();
  EXPECT_TRUE(
      ParseSafetensors({reinterpret_cast<const std::byte*>(seed.data()), seed.size()}, "seed")
          .ok());
  RunTarget(seed);
}

TEST(SafetensorsFuzzTest, SurvivesTruncation) {
  const std::string seed = Seed();
  for (size_t n = 0; n < seed.size(); n += n < 2000 ? 1 : 397) RunTarget(seed.substr(0, n));
}

TEST(SafetensorsFuzzTest, SurvivesMutatedHeaders) {
  const std::string seed = Seed();
  std::mt19937 random(2);
  for (int i = 0; i < 5000; ++i) RunTarget(MutateJson(seed, 1200, random));
}

}  // namespace
}  // namespace lowkey

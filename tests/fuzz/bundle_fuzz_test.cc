// The fuzz target over mutations of a good file, always the same ones.

#include <gtest/gtest.h>

#include "engine/loader/checkpoint.h"
#include "tests/fuzz/bundle_seed.h"
#include "tests/fuzz/json_mutations.h"

namespace lowkey {
namespace {

std::string Seed() {
  const TinyModel model;
  EXPECT_TRUE(WriteRandomBundle(model.path(), SeedBundle()).ok());
  EXPECT_TRUE(OpenCheckpoint(model.path()).ok());
  const std::string bytes = ReadFileOrDie(model.File("lowkey.json"));
  return bytes;
}

TEST(BundleFuzzTest, AcceptsItsSeed) { RunTarget(Seed()); }

TEST(BundleFuzzTest, SurvivesTruncation) {
  const std::string seed = Seed();
  for (size_t n = 0; n < seed.size(); n += 5) RunTarget(seed.substr(0, n));
}

TEST(BundleFuzzTest, SurvivesMutation) {
  const std::string seed = Seed();
  std::mt19937 random(1);
  for (int i = 0; i < 1500; ++i) RunTarget(MutateJson(seed, seed.size(), random));
}

}  // namespace
}  // namespace lowkey

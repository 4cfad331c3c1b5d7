#include "server/config/machine_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <new>

#include "bench/random_bundle.h"
#include "tests/testing/failing_new.h"
#include "tests/testing/temp_directory.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

class MachineProfileTest : public testing::Test {
 protected:
  MachineProfileTest() {
    setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    options_.n_threads = 1;
  }

  // Gives the model a choice of mechanisms.
  void AddEfficient() {
    RandomBundleOptions bundle{TinyConfig(), {{.mechanism = Mechanism::kEfficient}}, 1};
    ASSERT_TRUE(WriteRandomBundle(model_.path(), bundle).ok());
  }
  std::shared_ptr<const Checkpoint> Open() const { return OpenCheckpoint(model_.path()).value(); }
  // The profiles that were handed over until the measurement ended.
  std::vector<SelectionProfile> Profiles() {
    std::vector<SelectionProfile> profiles;
    {
      MachineProfile machine(Open(), options_, [&](auto p) { profiles.push_back(std::move(p)); });
    }
    return profiles;
  }

  const TempDirectory cache_;
  const TinyModel model_;
  EngineOptions options_;
};

TEST_F(MachineProfileTest, AModelWithoutAChoiceIsNotMeasured) {
  EXPECT_TRUE(Profiles().empty());
  EXPECT_TRUE(std::filesystem::is_empty(cache_.path()));
}

TEST_F(MachineProfileTest, IsMeasuredOnceAndThenReadFromTheCache) {
  AddEfficient();
  const auto measured = Profiles();
  ASSERT_EQ(measured.size(), 1u);
  EXPECT_EQ(measured[0].rates.size(), 3u);  // standard, efficient with keys and without
  EXPECT_GT(measured[0].RateOf({}, 100).prefill, 0);
  EXPECT_THAT(measured[0].name, testing::MatchesRegex("profile-[0-9a-f]+.json"));
  const std::string path = ProfileCachePath(*Open(), options_);
  ASSERT_TRUE(std::filesystem::exists(path)) << path;
  const auto cached = Profiles();
  ASSERT_EQ(cached.size(), 1u);
  EXPECT_EQ(cached[0].name, measured[0].name);
  EXPECT_EQ(cached[0].LinearRateOf(1), measured[0].LinearRateOf(1));
}

TEST_F(MachineProfileTest, AnUnreadableFileIsMeasuredAgain) {
  AddEfficient();
  const std::string path = ProfileCachePath(*Open(), options_);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  WriteFileOrDie(path, "{");
  EXPECT_EQ(Profiles().size(), 1u);
  EXPECT_NE(ReadFileOrDie(path), "{");
}

TEST_F(MachineProfileTest, ALackOfMemoryEndsTheMeasurementAlone) {
  AddEfficient();
  const auto checkpoint = Open();
  for (const int64_t n : {300, 1000, 3000, 10'000}) {
    FailAllocation(n);
    try {
      const MachineProfile machine(checkpoint, options_, [](auto) {});
    } catch (const std::bad_alloc&) {  // before the measurement began
    }
    FailAllocation(0);
  }
}

TEST_F(MachineProfileTest, AnotherShapeOrThreadCountHasAnotherFile) {
  AddEfficient();
  const std::string path = ProfileCachePath(*Open(), options_);
  options_.n_threads = 2;
  EXPECT_NE(ProfileCachePath(*Open(), options_), path);
}

}  // namespace
}  // namespace lowkey

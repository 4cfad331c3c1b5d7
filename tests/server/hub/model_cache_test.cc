#include "server/hub/model_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/time/clock.h"
#include "tests/server/hub/fake_hub.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

const std::string kCommit = FakeHub::kCommit;

bool Never() { return false; }

class ModelCacheTest : public ::testing::Test {
 protected:
  const ModelReference reference_ = *ParseModelReference("hf:acme/model");
  TempDirectory root_;
  const ModelCache cache_{root_.path(), reference_};
  const std::string folder_ = root_.File("models--acme--model");
  const HubFile file_ = {"sub/x.gguf", 5, std::string(64, 'a'), true};
};

TEST_F(ModelCacheTest, LinksBlobsIntoSnapshots) {
  ASSERT_TRUE(cache_.MakeFolders(kCommit).ok());
  EXPECT_FALSE(cache_.HasBlob(file_));
  WriteFileOrDie(cache_.BlobPath(file_), "hello");
  EXPECT_TRUE(cache_.HasBlob(file_));
  EXPECT_FALSE(cache_.HasFile(kCommit, file_));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(cache_.LinkFile(kCommit, file_).ok());
    EXPECT_TRUE(cache_.HasFile(kCommit, file_));
  }
  EXPECT_EQ(ReadFileOrDie(folder_ + "/snapshots/" + kCommit + "/sub/x.gguf"), "hello");
  // The whole cache can be moved.
  EXPECT_EQ(std::filesystem::read_symlink(cache_.SnapshotPath(kCommit) + "/sub/x.gguf"),
            "../../../blobs/" + file_.digest);
  HubFile other = file_;
  other.n_bytes = 6;
  EXPECT_FALSE(cache_.HasFile(kCommit, other));
}

TEST_F(ModelCacheTest, KeepsRevisionsAndListings) {
  EXPECT_EQ(cache_.ReadRevision("main"), std::nullopt);
  EXPECT_EQ(cache_.ReadRevision(kCommit), kCommit);
  ASSERT_TRUE(cache_.WriteRevision("refs/pr/1", kCommit).ok());
  EXPECT_EQ(cache_.ReadRevision("refs/pr/1"), kCommit);
  EXPECT_FALSE(cache_.HasListing(kCommit));
  EXPECT_TRUE(cache_.ReadListing(kCommit).empty());
  ASSERT_TRUE(cache_.WriteListing(kCommit, {file_}).ok());
  ASSERT_EQ(cache_.ReadListing(kCommit).size(), 1u);
  EXPECT_EQ(cache_.ReadListing(kCommit)[0].digest, file_.digest);
}

TEST_F(ModelCacheTest, BrokenFilesAreAsIfAbsent) {
  ASSERT_TRUE(cache_.WriteRevision("main", kCommit).ok());
  WriteFileOrDie(folder_ + "/refs/main", "../../../etc");
  EXPECT_EQ(cache_.ReadRevision("main"), std::nullopt);
  WriteFileOrDie(folder_ + "/refs/main", std::string(5000, 'a'));
  EXPECT_EQ(cache_.ReadRevision("main"), std::nullopt);
  ASSERT_TRUE(cache_.WriteListing(kCommit, {file_}).ok());
  WriteFileOrDie(folder_ + "/lowkey/" + kCommit + ".json", "[{");
  EXPECT_TRUE(cache_.ReadListing(kCommit).empty());
}

TEST_F(ModelCacheTest, ListsWhatAnotherProgramFetched) {
  ASSERT_TRUE(cache_.MakeFolders(kCommit).ok());
  WriteFileOrDie(cache_.BlobPath(file_), "hello");
  ASSERT_TRUE(cache_.LinkFile(kCommit, file_).ok());
  HubFile gone = file_;
  gone.path = "gone";
  gone.digest = std::string(64, 'b');
  ASSERT_TRUE(cache_.LinkFile(kCommit, gone).ok());
  const std::vector<HubFile> files = cache_.ReadListing(kCommit);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(files[0].path, "sub/x.gguf");
  EXPECT_EQ(files[0].n_bytes, 5);
  EXPECT_EQ(files[0].digest, "");
}

TEST_F(ModelCacheTest, OneHasTheLock) {
  int n_waits = 0;
  std::atomic<bool> is_taken{false};
  auto lock = std::make_unique<CacheLock>(*cache_.Lock(Never, [] {}));
  std::thread other([&] {
    auto second = cache_.Lock(Never, [&] { ++n_waits; });
    EXPECT_TRUE(second.ok());
    is_taken = true;
  });
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_FALSE(is_taken);
  lock.reset();
  other.join();
  EXPECT_TRUE(is_taken);
  EXPECT_EQ(n_waits, 1);
}

TEST_F(ModelCacheTest, WaitingForTheLockCanBeStopped) {
  const auto lock = cache_.Lock(Never, [] {});
  bool has_waited = false;
  const auto second = cache_.Lock([&] { return has_waited; }, [&] { has_waited = true; });
  EXPECT_TRUE(absl::IsCancelled(second.status()));
}

TEST_F(ModelCacheTest, SpaceIsCompared) {
  ASSERT_TRUE(cache_.MakeFolders(kCommit).ok());
  EXPECT_TRUE(cache_.CheckSpace(1).ok());
  const absl::Status status = cache_.CheckSpace(int64_t{1} << 60);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("bytes are free, expected 1152921504606846976"));
}

TEST_F(ModelCacheTest, AFileInTheWayIsAnError) {
  WriteFileOrDie(folder_, "a file");
  EXPECT_THAT(std::string(cache_.MakeFolders(kCommit).message()), HasSubstr(folder_));
  EXPECT_FALSE(cache_.WriteRevision("main", kCommit).ok());
}

}  // namespace
}  // namespace lowkey

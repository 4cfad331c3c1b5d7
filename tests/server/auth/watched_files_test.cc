#include "server/auth/watched_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "absl/time/clock.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

class WatchedFilesTest : public ::testing::Test {
 protected:
  // Asks until the change is no longer fresh.
  static void Settle(WatchedFiles& files) {
    while (files.HaveChanged()) absl::SleepFor(absl::Milliseconds(5));
  }

  const TempDirectory directory_;
  const std::string path_ = directory_.File("file");
};

TEST_F(WatchedFilesTest, ReplacedRewrittenAndGoneAreChanges) {
  WriteFileOrDie(path_, "one");
  WatchedFiles files({path_});
  EXPECT_TRUE(files.HaveChanged()) << "the first time";
  Settle(files);
  WriteFileOrDie(path_, "two");
  EXPECT_TRUE(files.HaveChanged()) << "rewritten at the same length";
  Settle(files);
  WriteFileOrDie(directory_.File("new"), "two");
  std::filesystem::rename(directory_.File("new"), path_);
  EXPECT_TRUE(files.HaveChanged()) << "replaced by one that is the same but for its inode";
  Settle(files);
  std::filesystem::remove(path_);
  EXPECT_TRUE(files.HaveChanged()) << "gone";
  EXPECT_FALSE(files.HaveChanged()) << "still gone";
  WriteFileOrDie(path_, "two");
  EXPECT_TRUE(files.HaveChanged()) << "back";
}

TEST_F(WatchedFilesTest, WhatALinkPointsToIsWatched) {
  WriteFileOrDie(directory_.File("a"), "text");
  WriteFileOrDie(directory_.File("b"), "text");
  std::filesystem::create_symlink("a", path_);
  WatchedFiles files({path_});
  Settle(files);
  std::filesystem::create_symlink("b", directory_.File("new"));
  std::filesystem::rename(directory_.File("new"), path_);
  EXPECT_TRUE(files.HaveChanged());
}

TEST_F(WatchedFilesTest, AnyOfSeveralCounts) {
  WriteFileOrDie(path_, "one");
  WatchedFiles files({path_, directory_.File("other")});
  Settle(files);
  WriteFileOrDie(directory_.File("other"), "x");
  EXPECT_TRUE(files.HaveChanged());
}

TEST_F(WatchedFilesTest, AFreshChangeIsLookedAtAgain) {
  WriteFileOrDie(path_, "one");
  WatchedFiles files({path_});
  const absl::Time start = absl::Now();
  const bool first = files.HaveChanged(), second = files.HaveChanged();
  EXPECT_TRUE(first);
  EXPECT_TRUE(second || absl::Now() - start > absl::Milliseconds(40));
}

TEST_F(WatchedFilesTest, TellsWhoMayRead) {
  WriteFileOrDie(path_, "x");
  std::filesystem::permissions(path_, std::filesystem::perms(0600));
  EXPECT_FALSE(IsReadableByAll(path_));
  std::filesystem::permissions(path_, std::filesystem::perms(0644));
  EXPECT_TRUE(IsReadableByAll(path_));
  EXPECT_FALSE(IsReadableByAll(directory_.File("absent")));
}

}  // namespace
}  // namespace lowkey

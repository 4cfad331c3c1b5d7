// A folder of pieces gives back what was written, or nothing: whatever became of its files.
#include "engine/runtime/prefix_files/piece_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kMaxBytes = 1 << 20;

PieceKey KeyOf(int32_t number) {
  PieceChain chain("space");
  return chain.Append({&number, 1});
}

std::vector<std::byte> Bytes(size_t n, int seed) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

std::vector<std::byte> BytesOf(const Buffer& buffer) {
  return {buffer.data(), buffer.data() + buffer.size_bytes()};
}

class PieceFolderTest : public ::testing::Test {
 protected:
  PieceFolder Open(int64_t max_bytes = kMaxBytes) const {
    auto folder = PieceFolder::Open(path_, max_bytes);
    EXPECT_TRUE(folder.ok()) << folder.status();
    return *std::move(folder);
  }
  std::string PathOf(int32_t number) const { return path_ + "/" + HexOf(KeyOf(number)) + ".piece"; }
  // Makes the file older than all others.
  void Age(int32_t number, int seconds) const {
    const timespec times[2] = {{1000 - seconds, 0}, {1000 - seconds, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, PathOf(number).c_str(), times, 0), 0);
  }
  size_t NumFiles() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

  const TempDirectory temp_;
  const std::string path_ = temp_.File("pieces");
  const absl::Time now_ = absl::Now();
};

TEST(PieceChainTest, AKeyFollowsFromTheSpaceAndAllTokensUpToIt) {
  const std::vector<int32_t> a = {1, 2}, b = {3, 4};
  const auto key = [](std::string_view space, std::vector<std::vector<int32_t>> pieces) {
    PieceChain chain(space);
    PieceKey last = {};
    for (const auto& piece : pieces) last = chain.Append(piece);
    return HexOf(last);
  };
  EXPECT_EQ(key("s", {a, b}), key("s", {a, b}));
  EXPECT_EQ(key("s", {a, b}).size(), 64u);
  EXPECT_NE(key("s", {a, b}), key("t", {a, b}));
  EXPECT_NE(key("s", {a, b}), key("s", {b, b}));
  EXPECT_NE(key("s", {a, b}), key("s", {a, a}));
  EXPECT_NE(key("s", {a, b}), key("s", {b}));
}

TEST_F(PieceFolderTest, GivesBackWhatWasWritten) {
  PieceFolder folder = Open();
  EXPECT_FALSE(folder.Touch(KeyOf(1), now_));
  EXPECT_FALSE(folder.Read(KeyOf(1), now_, 100)->has_value());
  ASSERT_TRUE(folder.Write(KeyOf(1), now_, Bytes(100, 5)).ok());
  ASSERT_TRUE(folder.Write(KeyOf(1), now_, Bytes(100, 5)).ok());  // of another process, say
  ASSERT_TRUE(folder.Write(KeyOf(2), now_, Bytes(0, 0)).ok());
  EXPECT_TRUE(folder.Touch(KeyOf(1), now_));
  EXPECT_EQ(BytesOf(Open().Read(KeyOf(1), now_, 100)->value()), Bytes(100, 5));
  EXPECT_TRUE(folder.Read(KeyOf(2), now_, 100)->value().size_bytes() == 0);
  EXPECT_EQ(NumFiles(), 2u);
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(PathOf(1).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(PieceFolderTest, AFileThatIsNotAsWrittenIsRemoved) {
  PieceFolder folder = Open();
  const std::string whole = [&] {
    EXPECT_TRUE(folder.Write(KeyOf(1), now_, Bytes(100, 5)).ok());
    return ReadFileOrDie(PathOf(1));
  }();
  std::vector<std::string> wrong = {"", whole.substr(0, 31), whole.substr(0, 131), whole + "x",
                                    std::string(whole.size(), '\0')};
  for (const size_t at : {0, 31, 32, 80, 131}) {
    wrong.push_back(whole);
    wrong.back()[at] = static_cast<char>(wrong.back()[at] ^ 1);
  }
  for (const std::string& bytes : wrong) {
    WriteFileOrDie(PathOf(1), bytes);
    EXPECT_EQ(folder.Read(KeyOf(1), now_, 100).status().code(), absl::StatusCode::kDataLoss);
    EXPECT_FALSE(fs::exists(PathOf(1)));
    EXPECT_FALSE(folder.Read(KeyOf(1), now_, 100)->has_value());
  }
  // A whole file under another key, and one that is too large.
  WriteFileOrDie(PathOf(2), whole);
  EXPECT_FALSE(folder.Read(KeyOf(2), now_, 100).ok());
  WriteFileOrDie(PathOf(1), whole);
  EXPECT_THAT(std::string(folder.Read(KeyOf(1), now_, 99).status().message()),
              HasSubstr("132 bytes, expected 32 to 131"));
}

TEST_F(PieceFolderTest, WhatIsNoRegularFileIsNotRead) {
  PieceFolder folder = Open();
  WriteFileOrDie(temp_.File("elsewhere"), std::string(132, 'x'));
  ASSERT_EQ(symlink(temp_.File("elsewhere").c_str(), PathOf(1).c_str()), 0);
  ASSERT_EQ(mkfifo(PathOf(2).c_str(), 0600), 0);
  ASSERT_EQ(mkdir(PathOf(3).c_str(), 0700), 0);
  for (const int number : {1, 2, 3}) {
    const auto piece = folder.Read(KeyOf(number), now_, 100);
    EXPECT_FALSE(piece.ok() && piece->has_value()) << number;
  }
  EXPECT_TRUE(folder.Write(KeyOf(1), now_, Bytes(10, 1)).ok());
  EXPECT_EQ(ReadFileOrDie(temp_.File("elsewhere")), std::string(132, 'x'));
  EXPECT_EQ(BytesOf(folder.Read(KeyOf(1), now_, 100)->value()), Bytes(10, 1));
  EXPECT_EQ(folder.Write(KeyOf(3), now_, Bytes(10, 1)).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(PieceFolderTest, TheFilesUsedLongestAgoMakeRoom) {
  PieceFolder folder = Open(1000);
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(folder.Write(KeyOf(i), now_, Bytes(100, i)).ok());
    Age(i, 100 - i);
  }
  WriteFileOrDie(path_ + "/notes.txt", std::string(5000, 'x'));   // not ours
  EXPECT_TRUE(folder.Read(KeyOf(0), now_, 100)->has_value());     // now the youngest
  ASSERT_TRUE(folder.Write(KeyOf(7), now_, Bytes(100, 7)).ok());  // 8 x 132 bytes: down to 900
  std::vector<int> left;
  for (int i = 0; i < 8; ++i) {
    if (fs::exists(PathOf(i))) left.push_back(i);
  }
  EXPECT_THAT(left, ::testing::ElementsAre(0, 3, 4, 5, 6, 7));
  EXPECT_TRUE(fs::exists(path_ + "/notes.txt"));
  Open(300);  // a smaller limit holds from the start
  EXPECT_LE(NumFiles(), 3u);
  // A piece above the limit does not stay.
  PieceFolder small = Open(50);
  EXPECT_TRUE(small.Write(KeyOf(9), now_, Bytes(100, 9)).ok());
  EXPECT_FALSE(small.Touch(KeyOf(9), now_));
}

TEST_F(PieceFolderTest, APrefixLosesItsEndFirst) {
  PieceFolder folder = Open(1000);
  for (int i = 0; i < 8; ++i)
    ASSERT_TRUE(folder.Write(KeyOf(i), now_ - i * absl::Microseconds(1), Bytes(100, i)).ok());
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(folder.Touch(KeyOf(i), now_ - i * absl::Microseconds(1)), i < 6) << i;
  // A prefix that was used a moment earlier keeps its beginning too.
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(folder.Write(KeyOf(10 + i), now_ - i * absl::Microseconds(1), Bytes(100, i)).ok());
  EXPECT_TRUE(folder.Touch(KeyOf(0), now_));
}

TEST_F(PieceFolderTest, AnEarlierUseDoesNotMakeAPieceOlder) {
  PieceFolder folder = Open(1000);
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(folder.Write(KeyOf(i), now_ + i * absl::Seconds(1), Bytes(100, i)).ok());
  }
  EXPECT_TRUE(folder.Touch(KeyOf(6), now_ - absl::Seconds(5)));
  EXPECT_TRUE(folder.Read(KeyOf(5), now_ - absl::Seconds(5), 100)->has_value());
  ASSERT_TRUE(folder.Write(KeyOf(7), now_ + absl::Seconds(9), Bytes(100, 7)).ok());
  for (int i = 0; i < 8; ++i) EXPECT_EQ(fs::exists(PathOf(i)), i >= 2) << i;
}

TEST_F(PieceFolderTest, WhatOtherProcessesWriteCounts) {
  PieceFolder a = Open(4000), b = Open(4000);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(a.Write(KeyOf(2 * i), now_, Bytes(100, i)).ok());
    ASSERT_TRUE(b.Write(KeyOf(2 * i + 1), now_, Bytes(100, i)).ok());
    EXPECT_LE(NumFiles(), 34u);
  }
}

TEST_F(PieceFolderTest, WhatADeadProcessLeftIsRemovedInTime) {
  { Open(); }
  const std::string old = path_ + "/" + HexOf(KeyOf(1)) + ".77.part";
  const std::string fresh = path_ + "/" + HexOf(KeyOf(2)) + ".78.part";
  WriteFileOrDie(old, "half");
  WriteFileOrDie(fresh, "half");
  const timespec times[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, old.c_str(), times, 0), 0);
  Open();
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh));
}

TEST_F(PieceFolderTest, AFolderThatCannotBeUsedIsRefused) {
  WriteFileOrDie(temp_.File("file"), "x");
  EXPECT_EQ(PieceFolder::Open(temp_.File("file"), kMaxBytes).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(PieceFolder::Open(temp_.File("file/a"), kMaxBytes).status().message()),
              HasSubstr("file/a: cannot be made: Not a directory"));
  EXPECT_TRUE(PieceFolder::Open(temp_.File("a/b/c/"), kMaxBytes).ok());
  struct stat info = {};
  ASSERT_EQ(stat(temp_.File("a/b/c").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

}  // namespace
}  // namespace lowkey

#include "server/hub/part_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/server/hub/fake_hub.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

bool Never() { return false; }

class PartFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<PartFile> Open() { return PartFile::Open(path_, file_, Never); }

  TempDirectory folder_;
  const std::string path_ = folder_.File("x.part"), whole_ = folder_.File("x");
  const std::string bytes_ = NoiseBytes(3'000'000);
  HubFile file_ = {"x", static_cast<int64_t>(bytes_.size()), Sha256(bytes_), true};
};

TEST_F(PartFileTest, BecomesTheFile) {
  auto part = Open();
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_TRUE(part->Append(bytes_.substr(0, 5)).ok());
  EXPECT_FALSE(part->IsWhole());
  EXPECT_TRUE(part->Append(bytes_.substr(5)).ok());
  ASSERT_TRUE(part->IsWhole());
  EXPECT_TRUE(part->Finish(whole_).ok());
  EXPECT_EQ(ReadFileOrDie(whole_), bytes_);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(PartFileTest, GoesOnFromWhatIsThere) {
  for (const size_t n : {size_t{1}, size_t{1} << 20, bytes_.size()}) {
    WriteFileOrDie(path_, bytes_.substr(0, n));
    auto part = Open();
    ASSERT_TRUE(part.ok());
    EXPECT_EQ(part->n_bytes(), static_cast<int64_t>(n));
    EXPECT_TRUE(part->Append(bytes_.substr(n)).ok());
    EXPECT_TRUE(part->Finish(whole_).ok());
    EXPECT_EQ(ReadFileOrDie(whole_), bytes_);
  }
}

TEST_F(PartFileTest, DigestsGitsBlobs) {
  // As git hash-object prints it of a file with the line "hello".
  file_ = {"x", 6, "ce013625030ba8dba906f756967f9e9ca394464a", false};
  auto part = Open();
  EXPECT_TRUE(part->Append("hello\n").ok());
  EXPECT_TRUE(part->Finish(whole_).ok());
  file_ = {"x", 0, "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391", false};
  auto empty = Open();
  EXPECT_TRUE(empty->IsWhole());
  EXPECT_TRUE(empty->Finish(whole_).ok());
}

TEST_F(PartFileTest, WrongBytesAreDropped) {
  WriteFileOrDie(path_, "wrong");
  auto part = Open();
  EXPECT_TRUE(part->Append(bytes_.substr(5)).ok());
  const absl::Status status = part->Finish(whole_);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(file_.digest));
  EXPECT_FALSE(std::filesystem::exists(whole_));
  EXPECT_EQ(part->n_bytes(), 0);
  EXPECT_TRUE(part->Append(bytes_).ok());
  EXPECT_TRUE(part->Finish(whole_).ok());
}

TEST_F(PartFileTest, TakesNoMoreThanTheFileHas) {
  auto part = Open();
  EXPECT_TRUE(part->Append(bytes_.substr(1)).ok());
  EXPECT_TRUE(absl::IsDataLoss(part->Append("ab")));
  EXPECT_EQ(std::filesystem::file_size(path_), bytes_.size() - 1);
  WriteFileOrDie(path_, bytes_ + "x");
  EXPECT_EQ(Open()->n_bytes(), 0);
}

TEST_F(PartFileTest, FollowsNoLinkAndOpensNoFolder) {
  WriteFileOrDie(folder_.File("victim"), "mine");
  ASSERT_EQ(symlink("victim", path_.c_str()), 0);
  EXPECT_FALSE(Open().ok());
  EXPECT_EQ(ReadFileOrDie(folder_.File("victim")), "mine");
  unlink(path_.c_str());
  std::filesystem::create_directory(path_);
  EXPECT_FALSE(Open().ok());
}

TEST_F(PartFileTest, ADeviceIsNoPart) {
  auto part = PartFile::Open("/dev/full", file_, Never);
  EXPECT_THAT(std::string(part.status().message()), HasSubstr("expected a regular file"));
}

TEST_F(PartFileTest, ReadingStopsWhenToldTo) {
  WriteFileOrDie(path_, bytes_.substr(0, 100));
  EXPECT_TRUE(absl::IsCancelled(PartFile::Open(path_, file_, [] { return true; }).status()));
  EXPECT_EQ(std::filesystem::file_size(path_), 100u);
}

}  // namespace
}  // namespace lowkey

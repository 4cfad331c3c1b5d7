#include "engine/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class FilesTest : public ::testing::Test {
 protected:
  const TempDirectory directory_;
  const std::string path_ = directory_.File("file");
};

TEST_F(FilesTest, FilesAreReadWholeWithinTheLimit) {
  std::string text(200'003, 'x');
  text[1] = '\0';
  WriteFileOrDie(path_, text);
  for (const auto read : {&ReadWholeFile, &ReadTextFile}) {
    EXPECT_EQ(*read(path_, text.size()), text);
    const absl::Status status = read(path_, text.size() - 1).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("file: over 200002 bytes"));
  }
}

TEST_F(FilesTest, AFileThatIsNotThereIsNamedWithTheReason) {
  WriteFileOrDie(path_, "x");
  for (const auto read : {&ReadWholeFile, &ReadTextFile}) {
    for (const char* name : {"absent", "file/inside"}) {
      const absl::Status status = read(directory_.File(name), 9).status();
      EXPECT_TRUE(absl::IsNotFound(status));
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(name) + ": cannot be read"));
    }
  }
  EXPECT_THAT(std::string(ReadWholeFile(directory_.File("absent"), 9).status().message()),
              EndsWith("No such file or directory"));
}

TEST_F(FilesTest, OnlyAFileThatAUserNamesMayBeAPipe) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  for (const std::string& path : {path_, directory_.path(), std::string("/dev/zero")}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReadWholeFile(path, 9).status())) << path;
  }
  std::thread writer([this] { WriteFileOrDie(path_, "text"); });
  EXPECT_EQ(*ReadTextFile(path_, 9), "text");
  writer.join();
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadTextFile(directory_.path(), 9).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadTextFile("/dev/zero", 9).status()));
}

TEST(FileErrorTest, TheCodeIsThatOfErrno) {
  errno = ENOSPC;
  EXPECT_TRUE(absl::IsResourceExhausted(FileError("x", "cannot be written")));
  EXPECT_TRUE(absl::IsNotFound(FileError("x", "cannot be read", ENOTDIR)));
  EXPECT_EQ(FileError("x", "cannot be made", EACCES),
            absl::FailedPreconditionError("x: cannot be made: Permission denied"));
}

}  // namespace
}  // namespace lowkey

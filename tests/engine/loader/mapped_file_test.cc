#include "engine/loader/mapped_file.h"

#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

TEST(MappedFile, HoldsTheWholeFileAndItsName) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("a.bin"), std::string("\0abc", 4));
  const auto file = MappedFile::Open(directory.File("a.bin"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->text(), std::string_view("\0abc", 4));
  EXPECT_EQ((*file)->size_bytes(), 4u);
  EXPECT_EQ((*file)->name(), "a.bin");
}

TEST(MappedFile, OutlivesTheRemovalOfTheFile) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("a"), "still here");
  const auto file = MappedFile::Open(directory.File("a"));
  std::filesystem::remove(directory.File("a"));
  EXPECT_EQ((*file)->text(), "still here");
}

TEST(MappedFile, WhatAFileNoLongerHasReadsAsZeros) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("a"), std::string(100'000, 'x'));
  const auto file = MappedFile::Open(directory.File("a")).value();
  EXPECT_TRUE(file->CheckWhole().ok());
  std::filesystem::resize_file(directory.File("a"), 10);
  EXPECT_EQ(file->text()[9], 'x');
  EXPECT_EQ(file->text()[50'000], '\0');
  EXPECT_EQ(file->text()[99'999], '\0');
  EXPECT_EQ(file->CheckWhole(),
            absl::UnavailableError("a: has become shorter since it was loaded"));
}

TEST(MappedFile, EmptyFileIsEmpty) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("empty"), "");
  const auto file = MappedFile::Open(directory.File("empty"));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size_bytes(), 0u);
  EXPECT_EQ((*file)->text(), "");
}

TEST(MappedFile, MissingFileIsNotFound) {
  const TempDirectory directory;
  const absl::Status status = MappedFile::Open(directory.File("absent")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("absent: No such file"));
  WriteFileOrDie(directory.File("file"), "x");
  EXPECT_EQ(MappedFile::Open(directory.File("file/inside")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(MappedFile, DirectoriesAndPipesAreRefusedWithoutWaiting) {
  const TempDirectory directory;
  EXPECT_EQ(MappedFile::Open(directory.path()).status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(mkfifo(directory.File("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(directory.File("pipe")).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lowkey

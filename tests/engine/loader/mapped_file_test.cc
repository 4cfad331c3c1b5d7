#include "engine/loader/mapped_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

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

// Returns how many pages of memory the process has of its files.
int64_t ResidentFilePages() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0, shared = 0;
  in >> size >> resident >> shared;
  return shared;
}

TEST(MappedFile, ReleasedBytesTakeNoMemoryAndCanBeReadAgain) {
  constexpr int64_t kPages = 1000, kPageBytes = 4096;
  const TempDirectory directory;
  const std::string text(kPages * kPageBytes, 'x');
  WriteFileOrDie(directory.File("a"), text);
  const auto file = MappedFile::Open(directory.File("a")).value();
  EXPECT_EQ(file->text(), text);
  const int64_t n_before = ResidentFilePages();
  // Pages that hold other bytes too stay.
  file->Release({file->data() + 1, file->size_bytes() - 2});
  EXPECT_LE(ResidentFilePages(), n_before - (kPages - 2) + kPages / 10);
  file->Release({file->data() + 5, 10});
  file->Release({});
  EXPECT_EQ(file->text(), text);
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

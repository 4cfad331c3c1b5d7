#include "server/config/user_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/files.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Error(std::string_view text) {
  const auto ids = ParseTokenIds(text, "ids.txt", 100);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(ids.status().message());
}

TEST(UserFilesTest, TakesAnyWhiteSpaceAndCommas) {
  EXPECT_THAT(*ParseTokenIds(" 1\t2\r\n3,4, 5 ", "ids.txt", 100), ElementsAre(1, 2, 3, 4, 5));
}

TEST(UserFilesTest, NamesTheWordAndItsLine) {
  EXPECT_THAT(Error("1 2\n3 x4\n"), HasSubstr("ids.txt: line 2: \"x4\""));
  EXPECT_THAT(Error("100"), HasSubstr("expected a token id in 0..99"));
  EXPECT_THAT(Error("-1"), HasSubstr("\"-1\""));
}

TEST(UserFilesTest, RefusesWhatIsNoInteger) {
  for (const char* bad : {"1.5", "0x1", "1e2", "+1", "99999999999999999999", "12abc"}) Error(bad);
  EXPECT_THAT(Error(std::string_view("1\0 2", 4)), HasSubstr("line 1"));
}

TEST(UserFilesTest, RefusesNothingAtAll) { EXPECT_THAT(Error(" \n"), HasSubstr("no token id")); }

TEST(UserFilesTest, CutsLongWordsAndHidesControlCharacters) {
  const std::string message = Error(std::string(1000, 'x'));
  EXPECT_LT(message.size(), 120u);
  EXPECT_EQ(Error("\033[2J").find('\033'), std::string::npos);
}

TEST(UserFilesTest, FileThatCannotBeReadIsAnError) {
  EXPECT_EQ(ReadTokenFile("/nonexistent/ids", 100).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadTokenFile("/", 100).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReadTokenFile("/dev/zero", 100).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(UserFilesTest, OnlyAFileOrNothingCanBeReplaced) {
  const std::string folder = ::testing::TempDir(), path = folder + "/replaceable";
  std::filesystem::remove(path);
  EXPECT_TRUE(CheckReplaceable(path).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(WriteTextFile(path, "kept").ok());
  EXPECT_TRUE(CheckReplaceable(path).ok());
  EXPECT_EQ(*ReadTextFile(path, 100), "kept");
  EXPECT_FALSE(std::filesystem::exists(path + ".part"));
  EXPECT_EQ(CheckReplaceable(folder).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckReplaceable("/dev/null").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckReplaceable(path + "/x").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckReplaceable("/nonexistent/x").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lowkey

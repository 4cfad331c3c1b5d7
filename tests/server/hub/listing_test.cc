#include "server/hub/listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

const std::string kSha256(64, 'a'), kSha1(40, 'b');

std::string Entry(const std::string& path, const std::string& size = "7") {
  return absl::StrCat(R"({"type": "file", "path": ")", path, R"(", "size": )", size,
                      R"(, "oid": ")", kSha1, "\"}");
}

std::string Message(const std::string& text) {
  return std::string(ParseListing(text, "list").status().message());
}

TEST(ListingTest, TakesFilesOfBothKinds) {
  const auto files = ParseListing(
      absl::StrCat(R"([{"type": "directory", "path": "sub", "oid": "x", "size": 0},)",
                   R"({"type": "file", "path": "sub/w.gguf", "size": 9, "oid": ")", kSha1,
                   R"(", "lfs": {"oid": ")", kSha256, R"(", "size": 9, "pointerSize": 130},)",
                   R"("xetHash": "f"},)", Entry("config.json"), "]"),
      "list");
  ASSERT_TRUE(files.ok()) << files.status();
  ASSERT_EQ(files->size(), 2u);
  EXPECT_EQ((*files)[0].path, "sub/w.gguf");
  EXPECT_EQ((*files)[0].digest, kSha256);
  EXPECT_TRUE((*files)[0].is_sha256);
  EXPECT_EQ((*files)[0].n_bytes, 9);
  EXPECT_EQ((*files)[1].digest, kSha1);
  EXPECT_FALSE((*files)[1].is_sha256);
}

TEST(ListingTest, ReadsWhatItWrites) {
  const std::vector<HubFile> files = {{"a/b.gguf", 5, kSha256, true}, {"é.json", 0, kSha1, false}};
  const auto read = ParseListing(ListingText(files), "list");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*read)[i].path, files[i].path);
    EXPECT_EQ((*read)[i].n_bytes, files[i].n_bytes);
    EXPECT_EQ((*read)[i].digest, files[i].digest);
    EXPECT_EQ((*read)[i].is_sha256, files[i].is_sha256);
  }
}

TEST(ListingTest, RefusesPathsThatLeaveTheFolder) {
  for (const std::string path : {"../x", "a/../../x", "/etc/passwd", "a//b", ".", "..", "a/.", "",
                                 "a/", "a\\\\..\\\\b", "a\\u0000b", "a\\nb", "a\\u007fb"}) {
    EXPECT_THAT(Message("[" + Entry(path) + "]"), HasSubstr("expected a relative path")) << path;
  }
  EXPECT_THAT(Message("[" + Entry(std::string(256, 'a')) + "]"), HasSubstr("relative path"));
  std::string deep;
  for (int i = 0; i < 600; ++i) deep += "a/";
  EXPECT_THAT(Message("[" + Entry(deep + "b") + "]"), HasSubstr("relative path"));
  EXPECT_EQ(Message("[" + Entry("a/b..c/..d.json") + "]"), "");
}

TEST(ListingTest, RefusesSizesAndDigestsThatAreNone) {
  for (const std::string size :
       {"-1", "1e3", "9223372036854775808", "1125899906842625", "\"7\"", "null", "[]"}) {
    EXPECT_THAT(Message("[" + Entry("a", size) + "]"), HasSubstr("list: entry 0: size"));
  }
  const std::string head = R"([{"type": "file", "path": "a", "size": 1)";
  EXPECT_THAT(Message(head + "}]"), HasSubstr("oid"));
  EXPECT_THAT(Message(head + R"(, "oid": "../../x"}])"), HasSubstr("40 hexadecimal digits"));
  EXPECT_THAT(Message(absl::StrCat(head, R"(, "lfs": {"oid": ")", kSha1, R"(", "size": 1}}])")),
              HasSubstr("64 hexadecimal digits"));
  EXPECT_THAT(Message(absl::StrCat(head, R"(, "lfs": {"oid": ")", kSha256, R"(", "size": 2}}])")),
              HasSubstr("the entry's own size"));
  EXPECT_THAT(Message(absl::StrCat(head, R"(, "lfs": {"oid": ")", std::string(64, 'A'),
                                   R"(", "size": 1}}])")),
              HasSubstr("64 hexadecimal digits"));
}

TEST(ListingTest, RefusesWhatIsNoArrayOfObjects) {
  for (const std::string text : {"", "{}", "null", "7", "[", "[{]", "[1]", "[[]]", "[] []",
                                 "[], \"files\": []", "[], \"more\": []", "[]}", "[\"a\"]"}) {
    EXPECT_NE(Message(text), "") << text;
  }
  EXPECT_NE(Message(std::string(1 << 20, '[')), "");
  EXPECT_NE(Message("[" + std::string(1 << 20, '{')), "");
  EXPECT_EQ(Message("[]"), "");
}

TEST(ListingTest, ManySmallValuesAreChargedBeforeTheyAreMade) {
  std::string text = "[";
  while (text.size() < (8 << 20) - 8) text += "{},";
  text += "{}]";
  EXPECT_NE(Message(text), "");
}

TEST(ListingTest, EveryPrefixIsAnError) {
  const std::string text = "[" + Entry("a") + "," + Entry("b") + "]";
  for (size_t n = 0; n < text.size(); ++n) EXPECT_NE(Message(text.substr(0, n)), "") << n;
}

// Changes, drops and doubles bytes of a good list; what is still taken must be safe.
TEST(ListingTest, WhatIsTakenOfMutatedListsIsSafe) {
  const std::string good =
      ListingText({{"a/b.gguf", 5, kSha256, true}, {"../config.json", 7, kSha1, false}});
  std::mt19937 random(1);
  const std::string bytes = "{}[]\":,./\\0123456789abcdef-\x01\xff";
  int n_taken = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = good;
    for (unsigned n = random() % 4 + 1; n > 0; --n) {
      const size_t at = random() % text.size();
      const unsigned kind = random() % 3;
      if (kind == 0) text[at] = bytes[random() % bytes.size()];
      if (kind == 1) text.erase(at, random() % 8 + 1);
      if (kind == 2) text.insert(at, text, random() % text.size(), random() % 40);
    }
    const auto files = ParseListing(text, "list");
    if (!files.ok()) continue;
    ++n_taken;
    for (const HubFile& file : *files) {
      EXPECT_TRUE(IsSafePath(file.path)) << text;
      const std::filesystem::path path(file.path);
      EXPECT_TRUE(path.is_relative()) << text;
      EXPECT_NE(*path.lexically_normal().begin(), "..") << text;
      EXPECT_EQ(file.digest.size(), file.is_sha256 ? 64u : 40u) << text;
      EXPECT_EQ(file.digest.find_first_not_of("0123456789abcdef"), std::string::npos) << text;
      EXPECT_GE(file.n_bytes, 0) << text;
    }
  }
  EXPECT_GT(n_taken, 0);
}

TEST(ListingTest, PathsAppearOnce) {
  const HubFile file = {"a", 1, kSha1, false};
  EXPECT_TRUE(CheckListing({file, {"b", 1, kSha1, false}}, "list").ok());
  EXPECT_THAT(std::string(CheckListing({file, file}, "list").message()), HasSubstr("twice"));
}

TEST(ListingTest, CommitsAreRead) {
  const std::string commit(40, 'c');
  EXPECT_EQ(*ParseCommitAnswer(R"({"id": "x", "sha": ")" + commit + "\"}", "answer"), commit);
  for (const std::string& text :
       {std::string("{}"), std::string("[]"), std::string(R"({"sha": "main"})"),
        std::string(R"({"sha": null})"), std::string(R"({"sha": "../../../../x"})"),
        std::string("<html>")}) {
    EXPECT_FALSE(ParseCommitAnswer(text, "answer").ok()) << text;
  }
}

}  // namespace
}  // namespace lowkey

#include "server/hub/url.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

TEST(UrlTest, HasItsParts) {
  const auto url = Url::Parse("https://Hub.example/a/b?c=d");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->scheme, "https");
  EXPECT_EQ(url->host, "hub.example");
  EXPECT_EQ(url->port, "443");
  EXPECT_EQ(Url::Parse("http://[::1]:8080/")->port, "8080");
}

TEST(UrlTest, RefusesWhatIsNotFetched) {
  for (const std::string text :
       {"", "hub.example", "ftp://hub.example", "file:///etc/passwd", "https://",
        "https://user@hub.example", "https://u:p@hub.example", "https://hub.example/a b",
        "https://hub.example/\r\nX: y", "https://hub.example:99999/", "gopher://x", "/a",
        "https://hub.example/\xc3\xa9"}) {
    EXPECT_FALSE(Url::Parse(text).ok()) << text;
  }
  EXPECT_FALSE(Url::Parse("https://x/" + std::string(9000, 'a')).ok());
  EXPECT_FALSE(Url::Parse(std::string("https://x/\0y", 12)).ok());
}

TEST(UrlTest, ResolvesLocations) {
  const Url base = *Url::Parse("https://hub.example/a/b");
  EXPECT_EQ(base.Resolve("/c")->text, "https://hub.example/c");
  EXPECT_EQ(base.Resolve("//cdn.example/d")->text, "https://cdn.example/d");
  EXPECT_EQ(base.Resolve("http://hub.example/x")->scheme, "http");
  EXPECT_FALSE(base.Resolve("").ok());
  EXPECT_FALSE(base.Resolve("file:///etc/passwd").ok());
}

TEST(UrlTest, OriginsAreSchemeHostAndPort) {
  const Url base = *Url::Parse("https://hub.example/a");
  EXPECT_TRUE(base.HasOriginOf(*Url::Parse("https://HUB.example:443/b")));
  EXPECT_FALSE(base.HasOriginOf(*Url::Parse("http://hub.example/a")));
  EXPECT_FALSE(base.HasOriginOf(*Url::Parse("https://hub.example:444/a")));
  EXPECT_FALSE(base.HasOriginOf(*Url::Parse("https://hub.example.evil/a")));
}

TEST(UrlTest, LoopbackIsThisMachine) {
  EXPECT_TRUE(Url::Parse("http://127.0.0.1:80/")->IsLoopback());
  EXPECT_TRUE(Url::Parse("http://localhost/")->IsLoopback());
  EXPECT_TRUE(Url::Parse("http://[::1]/")->IsLoopback());
  EXPECT_FALSE(Url::Parse("http://hub.example/")->IsLoopback());
  EXPECT_FALSE(Url::Parse("http://127.evil.example/")->IsLoopback());
}

TEST(UrlTest, Escapes) {
  EXPECT_EQ(EscapedForUrl("a/b c?#%é", Slashes::kKept), "a/b%20c%3F%23%25%C3%A9");
  EXPECT_EQ(EscapedForUrl("refs/pr/1", Slashes::kEncoded), "refs%2Fpr%2F1");
}

}  // namespace
}  // namespace lowkey

#include "server/auth/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/testing/certificates.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string TableOf(const std::string& token) {
  return absl::StrCat(R"({"tenants": [{"name": "a", "tokens": [{"token": ")", token, "\"}]}]}");
}

class CredentialsTest : public ::testing::Test {
 protected:
  ReloadLog Log() {
    return [this](const std::string& line) { lines_.push_back(line); };
  }

  const TempDirectory directory_;
  const std::string path_ = directory_.File("tokens.json");
  const std::string old_ = "the-old-token-0000000", new_ = "the-new-token-0000000";
  std::vector<std::string> lines_;
};

TEST_F(CredentialsTest, TokensAreThoseOfTheFileNow) {
  WriteFileOrDie(path_, TableOf(old_));
  const auto tokens = OpenTokens(path_, Log());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_NE((*tokens)->Get()->Find(old_), nullptr);
  WriteFileOrDie(path_, TableOf(new_));
  EXPECT_EQ((*tokens)->Get()->Find(old_), nullptr);
  EXPECT_NE((*tokens)->Get()->Find(new_), nullptr);
  EXPECT_THAT(lines_, ElementsAre(path_ + ": read again"));
}

TEST_F(CredentialsTest, BadFileKeepsTheOldTokensAndIsLoggedOnce) {
  WriteFileOrDie(path_, TableOf(old_));
  const auto tokens = OpenTokens(path_, Log());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const auto before = (*tokens)->Get();
  WriteFileOrDie(path_, "{");
  for (int i = 0; i < 100; ++i) EXPECT_EQ((*tokens)->Get(), before);
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("not JSON at "),
                                        HasSubstr("; what it was stays in force"))));
  std::filesystem::remove(path_);
  EXPECT_EQ((*tokens)->Get(), before);
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("not JSON"), HasSubstr("No such file")));
  WriteFileOrDie(path_, TableOf(new_));
  EXPECT_NE((*tokens)->Get()->Find(new_), nullptr);
  EXPECT_EQ(lines_.size(), 3u);
}

TEST_F(CredentialsTest, SameContentIsNoNews) {
  WriteFileOrDie(path_, TableOf(old_));
  const auto tokens = OpenTokens(path_, Log());
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  const auto before = (*tokens)->Get();
  WriteFileOrDie(path_, TableOf(old_));
  EXPECT_EQ((*tokens)->Get(), before);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(CredentialsTest, ReadingAgainIsLoggedWhateverItFinds) {
  WriteFileOrDie(path_, TableOf(old_));
  Credentials credentials;
  credentials.ReadAgain();
  credentials.tokens = *OpenTokens(path_, Log());
  credentials.ReadAgain();
  WriteFileOrDie(path_, "{");
  credentials.ReadAgain();
  credentials.ReadAgain();
  EXPECT_THAT(lines_, ElementsAre(path_ + ": read again", HasSubstr("stays in force"),
                                  HasSubstr("stays in force")));
  EXPECT_NE(credentials.tokens->Get()->Find(old_), nullptr);
}

TEST_F(CredentialsTest, BadFileAtTheStartIsAnError) {
  EXPECT_EQ(OpenTokens(path_, Log()).status().code(), absl::StatusCode::kNotFound);
  WriteFileOrDie(path_, "[]");
  EXPECT_EQ(OpenTokens(path_, Log()).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(CredentialsTest, ManyReadersWhileTheFileChanges) {
  WriteFileOrDie(path_, TableOf(old_));
  const auto tokens = OpenTokens(path_, [](const std::string&) {});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      for (int k = 0; k < 500; ++k) {
        const auto table = (*tokens)->Get();
        EXPECT_TRUE(table->Find(old_) != nullptr || table->Find(new_) != nullptr);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    WriteFileOrDie(directory_.File("next"), TableOf(i % 2 == 0 ? new_ : old_));
    std::filesystem::rename(directory_.File("next"), path_);
  }
  for (std::thread& reader : readers) reader.join();
}

TEST_F(CredentialsTest, CertificateAndKeyAreTakenTogether) {
  const TestAuthority authority("test");
  const TestAuthority::Issued first = authority.Issue("first"), second = authority.Issue("second");
  const TlsPaths paths = {directory_.File("cert"), directory_.File("key")};
  WriteFileOrDie(paths.certificate, first.certificate);
  WriteFileOrDie(paths.key, first.key);
  const auto tls = OpenTls(paths, Log());
  ASSERT_TRUE(tls.ok()) << tls.status();
  WriteFileOrDie(paths.certificate, second.certificate);
  EXPECT_EQ((*tls)->Get()->certificate, first.certificate) << "the key is still the first's";
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("is not the key of")));
  WriteFileOrDie(paths.key, second.key);
  EXPECT_EQ((*tls)->Get()->certificate, second.certificate);
  EXPECT_EQ((*tls)->Get()->key, second.key);
}

TEST_F(CredentialsTest, AddressIsGuardedByTlsWithTokensOrClientCertificates) {
  const TestAuthority authority("test");
  const TestAuthority::Issued issued = authority.Issue("server");
  const TlsPaths paths = {directory_.File("cert"), directory_.File("key")};
  WriteFileOrDie(paths.certificate, issued.certificate);
  WriteFileOrDie(paths.key, issued.key);
  WriteFileOrDie(path_, TableOf(old_));
  Credentials credentials;
  EXPECT_FALSE(credentials.IsGuarded());
  credentials.tls = *OpenTls(paths, Log());
  EXPECT_FALSE(credentials.IsGuarded());
  credentials.has_client_certificates = true;
  EXPECT_TRUE(credentials.IsGuarded());
  credentials.has_client_certificates = false;
  credentials.tokens = *OpenTokens(path_, Log());
  EXPECT_TRUE(credentials.IsGuarded());
  credentials.tls = nullptr;
  EXPECT_FALSE(credentials.IsGuarded());
}

}  // namespace
}  // namespace lowkey

#include "server/auth/tls_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "tests/testing/certificates.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class TlsFilesTest : public ::testing::Test {
 protected:
  void Write(const TestAuthority::Issued& issued) {
    WriteFileOrDie(paths_.certificate, issued.certificate);
    WriteFileOrDie(paths_.key, issued.key);
  }

  // Returns the message of the refusal, which begins with the flag and the file's path.
  std::string Refusal(const std::string& flag, const std::string& file) const {
    const auto files = ReadTlsFiles(paths_);
    EXPECT_EQ(files.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(files.status().message()),
                StartsWith(flag + ": " + directory_.File(file) + ": "));
    return std::string(files.status().message());
  }

  const TempDirectory directory_;
  const TestAuthority authority_{"test"};
  TlsPaths paths_ = {directory_.File("cert.pem"), directory_.File("key.pem")};
};

TEST_F(TlsFilesTest, GoodFilesAreReadAsTheyAre) {
  const TestAuthority::Issued issued = authority_.Issue("server");
  // The authority's certificate may follow.
  Write({issued.certificate + authority_.certificate(), issued.key});
  paths_.authority = directory_.File("ca.pem");
  WriteFileOrDie(*paths_.authority, "comment\n" + authority_.certificate());
  const auto files = ReadTlsFiles(paths_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->certificate, issued.certificate + authority_.certificate());
  EXPECT_EQ(files->key, issued.key);
  EXPECT_EQ(files->authority, "comment\n" + authority_.certificate());
  EXPECT_GT(files->certificate_end, absl::Now() + absl::Hours(23));
  EXPECT_LT(files->certificate_end, absl::Now() + absl::Hours(25));
}

TEST_F(TlsFilesTest, AbsentFileIsNamed) {
  EXPECT_EQ(ReadTlsFiles(paths_).status().code(), absl::StatusCode::kNotFound);
  WriteFileOrDie(paths_.certificate, authority_.Issue("server").certificate);
  EXPECT_THAT(std::string(ReadTlsFiles(paths_).status().message()),
              AllOf(StartsWith("--tls-key: "), HasSubstr("key.pem: cannot be read: No such file")));
}

TEST_F(TlsFilesTest, KeyOfAnotherCertificateIsRefused) {
  Write({authority_.Issue("one").certificate, authority_.Issue("two").key});
  EXPECT_THAT(Refusal("--tls-key", "key.pem"), HasSubstr("is not the key of"));
}

TEST_F(TlsFilesTest, SwappedFilesAreRefused) {
  const TestAuthority::Issued issued = authority_.Issue("server");
  Write({issued.key, issued.certificate});
  EXPECT_THAT(Refusal("--tls-cert", "cert.pem"), HasSubstr("expected PEM certificates"));
}

TEST_F(TlsFilesTest, CertificateOutsideItsTimeIsRefused) {
  Write(authority_.Issue("server", {.begins_in_days = -2, .ends_in_days = -1}));
  EXPECT_THAT(Refusal("--tls-cert", "cert.pem"), HasSubstr("past its time"));
  Write(authority_.Issue("server", {.begins_in_days = 1, .ends_in_days = 2}));
  EXPECT_THAT(Refusal("--tls-cert", "cert.pem"), HasSubstr("not yet valid"));
}

TEST_F(TlsFilesTest, WeakKeyIsRefused) {
  Write(authority_.Issue("server", {.is_weak = true}));
  EXPECT_THAT(Refusal("--tls-cert", "cert.pem"), HasSubstr("too small"));
}

TEST_F(TlsFilesTest, HostileBytesAreRefused) {
  const TestAuthority::Issued good = authority_.Issue("server");
  const std::string garbage(100000, '\xff');
  const std::string cut = good.certificate.substr(0, good.certificate.size() / 2);
  std::string flipped = good.certificate;
  flipped[flipped.size() / 2] ^= 1;
  const std::string nested = "-----BEGIN CERTIFICATE-----\n" + good.certificate;
  for (const std::string& bytes :
       {std::string(), garbage, cut, flipped, nested, std::string(kMaxPemBytes + 1, 'a')}) {
    Write({bytes, good.key});
    Refusal("--tls-cert", "cert.pem");
  }
  for (const std::string& bytes : {std::string(), garbage, good.key.substr(0, 60)}) {
    Write({good.certificate, bytes});
    Refusal("--tls-key", "key.pem");
  }
  Write(good);
  paths_.authority = directory_.File("ca.pem");
  for (const std::string& bytes : {std::string(), garbage, good.key}) {
    WriteFileOrDie(*paths_.authority, bytes);
    Refusal("--tls-client-ca", "ca.pem");
  }
}

TEST_F(TlsFilesTest, KeyWithAPassPhraseIsRefusedWithoutAsking) {
  // The text that `openssl ecparam -name prime256v1 -genkey | openssl ec -aes128 -passout pass:x`
  // begins with is enough to make OpenSSL ask.
  Write({authority_.Issue("server").certificate,
         "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
         "DEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n"
         "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n-----END EC PRIVATE KEY-----\n"});
  EXPECT_THAT(Refusal("--tls-key", "key.pem"), HasSubstr("without a pass phrase"));
}

TEST_F(TlsFilesTest, AuthorityIsReadAlone) {
  WriteFileOrDie(paths_.certificate, authority_.certificate());
  EXPECT_EQ(*ReadAuthority(paths_.certificate), authority_.certificate());
  WriteFileOrDie(paths_.certificate, "x");
  EXPECT_EQ(ReadAuthority(paths_.certificate).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lowkey

#include "tests/testing/certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <atomic>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Key NewKey(bool is_weak) {
  EVP_PKEY* key = is_weak ? EVP_RSA_gen(512) : EVP_EC_gen("P-256");
  LK_CHECK(key != nullptr);
  return Key(key, &EVP_PKEY_free);
}

void AddExtension(X509& certificate, X509& issuer, int id, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value);
  LK_CHECK(extension != nullptr && X509_add_ext(&certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

Certificate NewCertificate(const std::string& name, EVP_PKEY& key,
                           const TestAuthority::IssueOptions& options) {
  static std::atomic<int> serial{1};
  constexpr int kDaySeconds = 86400;
  Certificate certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), kDaySeconds * options.begins_in_days);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kDaySeconds * options.ends_in_days);
  X509_set_pubkey(certificate.get(), &key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

std::string TextOf(BIO* bio) {
  char* data = nullptr;
  const auto n_bytes = static_cast<size_t>(BIO_get_mem_data(bio, &data));
  std::string text(data, n_bytes);
  BIO_free(bio);
  return text;
}

TestAuthority::Issued ToPem(X509& certificate, EVP_PKEY& key) {
  BIO* first = BIO_new(BIO_s_mem());
  BIO* second = BIO_new(BIO_s_mem());
  LK_CHECK(PEM_write_bio_X509(first, &certificate) == 1);
  LK_CHECK(PEM_write_bio_PrivateKey(second, &key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return {TextOf(first), TextOf(second)};
}

}  // namespace

struct TestAuthority::Keys {
  Key key;
  Certificate certificate;
};

TestAuthority::TestAuthority(const std::string& name) {
  Key key = NewKey(false);
  Certificate certificate = NewCertificate(name, *key, {});
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  AddExtension(*certificate, *certificate, NID_basic_constraints, "critical,CA:TRUE");
  LK_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  own_ = ToPem(*certificate, *key);
  keys_ = std::make_unique<Keys>(Keys{std::move(key), std::move(certificate)});
}

TestAuthority::~TestAuthority() = default;

TestAuthority::Issued TestAuthority::Issue(const std::string& name,
                                           const IssueOptions& options) const {
  const Key key = NewKey(options.is_weak);
  const Certificate certificate = NewCertificate(name, *key, options);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(keys_->certificate.get()));
  AddExtension(*certificate, *keys_->certificate, NID_subject_alt_name,
               "DNS:localhost,IP:127.0.0.1,IP:::1");
  LK_CHECK(X509_sign(certificate.get(), keys_->key.get(), EVP_sha256()) > 0);
  return ToPem(*certificate, *key);
}

}  // namespace lowkey

#include "server/auth/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// Longer files are no chain.
constexpr size_t kMaxCertificates = 1024;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Freer<SSL_CTX_free>>;

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Returns OpenSSL's text for this thread's last error and clears the errors.
std::string Reason() {
  const unsigned long error = ERR_peek_last_error();
  const char* reason = error == 0 ? nullptr : ERR_reason_error_string(error);
  ERR_clear_error();
  return reason == nullptr ? "" : absl::StrCat(" (", reason, ")");
}

absl::Status Invalid(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what, Reason()));
}

// An encrypted key must fail rather than ask on the terminal.
int NoPassPhrase(char*, int, int, void*) { return -1; }

absl::Status CheckTime(const std::string& path, const X509& certificate) {
  if (X509_cmp_current_time(X509_get0_notAfter(&certificate)) <= 0) {
    return Invalid(path, "certificate is past its time");
  }
  if (X509_cmp_current_time(X509_get0_notBefore(&certificate)) > 0) {
    return Invalid(path, "certificate is not yet valid");
  }
  return absl::OkStatus();
}

absl::Time EndOf(const X509& certificate) {
  tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(&certificate), &end) != 1) return absl::InfiniteFuture();
  return absl::FromTM(end, absl::UTCTimeZone());
}

absl::StatusOr<std::vector<Certificate>> ParseCertificates(const std::string& path,
                                                           const std::string& pem) {
  const Bio bio = BioOf(pem);
  std::vector<Certificate> chain;
  while (chain.size() < kMaxCertificates) {
    Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, &NoPassPhrase, nullptr));
    if (certificate == nullptr) break;
    chain.push_back(std::move(certificate));
  }
  // The end of the file is an error too, of this code.
  const bool is_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (chain.empty() || !is_end) return Invalid(path, "expected PEM certificates");
  ERR_clear_error();
  return chain;
}

absl::Status UseKey(const TlsPaths& names, const std::string& pem, const X509& certificate,
                    SSL_CTX* context) {
  const Key key(PEM_read_bio_PrivateKey(BioOf(pem).get(), nullptr, &NoPassPhrase, nullptr));
  if (key == nullptr) return Invalid(names.key, "expected a PEM key without a pass phrase");
  if (X509_check_private_key(&certificate, key.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1) {
    return Invalid(names.key, "is not the key of the certificate");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status UseTlsAuthority(const std::string& name, const std::string& pem, ssl_ctx_st* context) {
  LK_ASSIGN_OR_RETURN(const std::vector<Certificate> authorities, ParseCertificates(name, pem));
  for (const Certificate& authority : authorities) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return Invalid(name, "certificate cannot be used");
    }
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return absl::OkStatus();
}

absl::Status UseTlsFiles(const TlsPaths& names, const TlsFiles& files, ssl_ctx_st* context) {
  ERR_clear_error();
  LK_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                      ParseCertificates(names.certificate, files.certificate));
  LK_RETURN_IF_ERROR(CheckTime(names.certificate, *chain[0]));
  if (SSL_CTX_use_certificate(context, chain[0].get()) != 1) {
    return Invalid(names.certificate, "certificate cannot be used");
  }
  LK_RETURN_IF_ERROR(UseKey(names, files.key, *chain[0], context));
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) {
      return Invalid(names.certificate, "chain cannot be used");
    }
  }
  if (!files.authority.has_value()) return absl::OkStatus();
  return UseTlsAuthority(names.authority.value_or("authority"), *files.authority, context);
}

absl::StatusOr<std::string> ReadAuthority(const std::string& path) {
  ERR_clear_error();
  LK_ASSIGN_OR_RETURN(std::string pem, ReadWholeFile(path, kMaxPemBytes));
  LK_RETURN_IF_ERROR(ParseCertificates(path, pem).status());
  return pem;
}

absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths) {
  TlsFiles files;
  LK_ASSIGN_OR_RETURN(files.certificate,
                      Prefixed("--tls-cert", ReadWholeFile(paths.certificate, kMaxPemBytes)));
  LK_ASSIGN_OR_RETURN(files.key, Prefixed("--tls-key", ReadWholeFile(paths.key, kMaxPemBytes)));
  if (paths.authority.has_value()) {
    LK_ASSIGN_OR_RETURN(files.authority,
                        Prefixed("--tls-client-ca", ReadAuthority(*paths.authority)));
  }
  const TlsPaths names = {absl::StrCat("--tls-cert: ", paths.certificate),
                          absl::StrCat("--tls-key: ", paths.key),
                          absl::StrCat("--tls-client-ca: ", paths.authority.value_or(""))};
  // The checks of a handshake are made in advance.
  const Context context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return Invalid(names.certificate, "TLS cannot be used");
  LK_RETURN_IF_ERROR(UseTlsFiles(names, files, context.get()));
  LK_ASSIGN_OR_RETURN(const std::vector<Certificate> chain,
                      ParseCertificates(names.certificate, files.certificate));
  files.certificate_end = EndOf(*chain[0]);
  return files;
}

}  // namespace lowkey

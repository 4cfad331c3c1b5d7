#ifndef LOWKEY_SERVER_NET_TLS_CONTEXT_H_
#define LOWKEY_SERVER_NET_TLS_CONTEXT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "server/auth/credentials.h"
#include "server/auth/tls_files.h"

struct ssl_ctx_st;

namespace lowkey {

// TlsContext is what OpenSSL keeps for all connections that use one set of files: TLS 1.2 with
// ECDHE and AEAD ciphers, or 1.3; ALPN h2 and http/1.1; no renegotiation, no session cache and no
// tickets. Thread-safe.
class TlsContext {
 public:
  // INVALID_ARGUMENT if OpenSSL refuses the files. With an authority clients must show a
  // certificate that it has signed.
  static absl::StatusOr<std::shared_ptr<const TlsContext>> Make(const TlsFiles& files);

  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  ssl_ctx_st* get() const { return context_; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}

  ssl_ctx_st* const context_;
};

// Gives every connection the context of the files as they are now. Not thread-safe.
class TlsContexts {
 public:
  // Null: connections are in clear.
  explicit TlsContexts(std::shared_ptr<TlsSource> source) : source_(std::move(source)) {}

  bool is_encrypted() const { return source_ != nullptr; }

  // Null in clear. Files that OpenSSL refuses leave the last good context in force; an error only
  // if there never was one.
  absl::StatusOr<std::shared_ptr<const TlsContext>> Get();

 private:
  const std::shared_ptr<TlsSource> source_;
  std::shared_ptr<const TlsFiles> files_;
  std::shared_ptr<const TlsContext> context_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_TLS_CONTEXT_H_

#include "server/net/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// In the order of our preference, each after its length.
constexpr std::string_view kProtocols = "\x02h2\x08http/1.1";

const unsigned char* BytesOf(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

// OpenSSL's callback; a client that offers neither protocol gets no answer.
int SelectProtocol(SSL*, const unsigned char** selected, unsigned char* selected_bytes,
                   const unsigned char* offered, unsigned int offered_bytes, void*) {
  unsigned char* name = nullptr;
  const int found = SSL_select_next_proto(&name, selected_bytes, BytesOf(kProtocols),
                                          kProtocols.size(), offered, offered_bytes);
  if (found != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *selected = name;
  return SSL_TLSEXT_ERR_OK;
}

bool SetUp(SSL_CTX* context) {
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // A read returns after each record that has no data: a client may send such records without end.
  SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
  // An idle connection keeps no buffers, and a write takes what the socket takes.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_alpn_select_cb(context, &SelectProtocol, nullptr);
  return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
         SSL_CTX_set_cipher_list(context, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1 &&
         SSL_CTX_set_num_tickets(context, 0) == 1 && SSL_CTX_set_max_early_data(context, 0) == 1;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContext::Make(const TlsFiles& files) {
  ERR_clear_error();
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  if (context == nullptr) return absl::ResourceExhaustedError("no memory for TLS");
  std::shared_ptr<const TlsContext> owner(new TlsContext(context));
  if (!SetUp(context)) {
    ERR_clear_error();
    return absl::InvalidArgumentError("OpenSSL refuses TLS 1.2 with ECDHE and AEAD ciphers");
  }
  const TlsPaths names = {"--tls-cert", "--tls-key", "--tls-client-ca"};
  LK_RETURN_IF_ERROR(UseTlsFiles(names, files, context));
  return owner;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

absl::StatusOr<std::shared_ptr<const TlsContext>> TlsContexts::Get() {
  if (source_ == nullptr) return nullptr;
  std::shared_ptr<const TlsFiles> files = source_->Get();
  if (files == files_) return context_;
  auto context = TlsContext::Make(*files);
  if (context.ok()) context_ = *std::move(context);
  if (context_ == nullptr) return context.status();
  // Files that were refused are not tried again with every connection.
  files_ = std::move(files);
  return context_;
}

}  // namespace lowkey

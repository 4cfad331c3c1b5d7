#include "server/grpc/connection/server_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/status.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/status_macros.h"
#include "server/grpc/connection/call_guard.h"

namespace lowkey {
namespace {

std::string_view ViewOf(const grpc_slice& slice) {
  return {reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)), GRPC_SLICE_LENGTH(slice)};
}

// The checks of one listening port, called by gRPC's core: its C++ interface takes a processor of
// headers for TLS only. The core's credentials own this object.
class PortGuard {
 public:
  PortGuard(const Credentials& credentials, OnRefusedCall on_refused)
      : guard_(credentials.tokens), tls_(credentials.tls), on_refused_(std::move(on_refused)) {}

  // grpc_auth_metadata_processor.
  static void Process(void* state, grpc_auth_context*, const grpc_metadata* headers,
                      size_t n_headers, grpc_process_auth_metadata_done_cb done, void* user_data) {
    const absl::Status status =
        static_cast<PortGuard*>(state)->CheckCall(absl::MakeSpan(headers, n_headers));
    // The numbers of both kinds of codes are the same.
    const auto code = static_cast<grpc_status_code>(status.code());
    const std::string message(status.message());
    done(user_data, nullptr, 0, nullptr, 0, code, message.c_str());
  }
  static void Destroy(void* state) { delete static_cast<PortGuard*>(state); }

  // grpc_ssl_server_certificate_config_callback, called before every handshake.
  static grpc_ssl_certificate_config_reload_status FetchCertificates(
      void* state, grpc_ssl_server_certificate_config** config) {
    return static_cast<PortGuard*>(state)->Fetch(config);
  }

 private:
  absl::Status CheckCall(absl::Span<const grpc_metadata> headers) {
    std::string_view method;
    std::vector<std::string_view> authorization;
    for (const grpc_metadata& header : headers) {
      const std::string_view key = ViewOf(header.key);
      if (key == ":path") method = ViewOf(header.value);
      if (key == "authorization") authorization.push_back(ViewOf(header.value));
    }
    const absl::Status status = guard_.CheckMethod(method, authorization);
    if (!status.ok()) on_refused_(method, status);
    return status;
  }

  grpc_ssl_certificate_config_reload_status Fetch(grpc_ssl_server_certificate_config** config) {
    std::shared_ptr<const TlsFiles> files = tls_->Get();
    absl::MutexLock lock(&mutex_);
    if (files == in_use_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair = {files->key.c_str(), files->certificate.c_str()};
    // gRPC 1.51 aborts without an authority; it uses none where clients need no certificate.
    const std::string authority = files->authority.value_or(files->certificate);
    *config = grpc_ssl_server_certificate_config_create(authority.c_str(), &pair, 1);
    in_use_ = std::move(files);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const CallGuard guard_;
  const std::shared_ptr<TlsSource> tls_;
  const OnRefusedCall on_refused_;
  absl::Mutex mutex_;
  std::shared_ptr<const TlsFiles> in_use_ ABSL_GUARDED_BY(mutex_);
};

class GuardedCredentials final : public grpc::ServerCredentials {
 public:
  GuardedCredentials(const Credentials& credentials, OnRefusedCall on_refused)
      : credentials_(credentials), on_refused_(std::move(on_refused)) {}

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    LK_CHECK(false);  // a second processor would replace ours
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    auto* guard = new PortGuard(credentials_, on_refused_);
    grpc_server_credentials* credentials =
        credentials_.tls == nullptr ? grpc_insecure_server_credentials_create() : MakeTls(guard);
    grpc_server_credentials_set_auth_metadata_processor(
        credentials, {&PortGuard::Process, &PortGuard::Destroy, guard});
    const int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);
    return port;
  }

  grpc_server_credentials* MakeTls(PortGuard* guard) const {
    const auto request = credentials_.has_client_certificates
                             ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                             : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            request, &PortGuard::FetchCertificates, guard));
  }

  const Credentials credentials_;
  const OnRefusedCall on_refused_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const Credentials& credentials,
                                                               OnRefusedCall on_refused) {
  return std::make_shared<GuardedCredentials>(credentials, std::move(on_refused));
}

}  // namespace lowkey

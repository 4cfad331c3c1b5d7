#include "client/channel.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_interceptor.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/auth/token_table.h"
#include "server/net/address.h"

namespace lowkey {
namespace {

using grpc::experimental::InterceptionHookPoints;

// Answers carry log-probabilities and are far larger than requests.
constexpr int kMaxAnswerBytes = 256 << 20;

// Sends the token itself: gRPC's call credentials never go over connections in clear.
class TokenSender final : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(const std::string& authorization) : authorization_(authorization) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", authorization_);
    }
    methods->Proceed();
  }

 private:
  const std::string& authorization_;
};

class TokenSenderFactory final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenderFactory(const std::string& token)
      : authorization_(absl::StrCat("Bearer ", token)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(
      grpc::experimental::ClientRpcInfo*) override {
    return new TokenSender(authorization_);  // gRPC owns the sender; the factory outlives the calls
  }

 private:
  const std::string authorization_;
};

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const ConnectOptions& options) {
  if (!options.tls.has_value()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = options.tls->authority;
  if (options.tls->own.has_value()) {
    ssl.pem_cert_chain = options.tls->own->certificate;
    ssl.pem_private_key = options.tls->own->key;
  }
  return grpc::SslCredentials(ssl);
}

}  // namespace

absl::Status CheckToken(const ConnectOptions& options) {
  if (!options.token.has_value()) return absl::OkStatus();
  if (!IsWellFormedToken(*options.token)) {
    return absl::InvalidArgumentError(absl::StrCat("token: ", options.token->size(),
                                                   " bytes, expected ", kMinTokenBytes, "..",
                                                   kMaxTokenBytes, " letters, digits or -._~+/"));
  }
  if (options.tls.has_value() || IsLoopback(HostOf(options.address))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the token would travel in clear to ", options.address,
                   ": expected --tls-ca FILE, or --insecure to send it all the same"));
}

std::shared_ptr<grpc::Channel> OpenChannel(const ConnectOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxAnswerBytes);
  // The channel shares its connection with no other channel.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A proxy from the environment cannot reach this machine's own loopback.
  if (IsLoopback(HostOf(options.address))) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  if (options.token.has_value()) {
    interceptors.push_back(std::make_unique<TokenSenderFactory>(*options.token));
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(
      options.address, CredentialsOf(options), arguments, std::move(interceptors));
}

}  // namespace lowkey

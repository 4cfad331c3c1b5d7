#ifndef LOWKEY_SERVER_GRPC_PARSE_ERRORS_H_
#define LOWKEY_SERVER_GRPC_PARSE_ERRORS_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

namespace lowkey {

// Makes a factory for a server's builder, one per server. gRPC answers a message that protobuf
// cannot parse with UNIMPLEMENTED and no text; the interceptor makes that INVALID_ARGUMENT, and
// names the field if its text is not UTF-8. It also clips status messages to a size that surely
// reaches the client. The first factory takes over protobuf's log.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> ExplainParseErrors();

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_PARSE_ERRORS_H_

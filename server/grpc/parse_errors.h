#ifndef LOWKEY_SERVER_GRPC_PARSE_ERRORS_H_
#define LOWKEY_SERVER_GRPC_PARSE_ERRORS_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

namespace lowkey {

// gRPC answers a message that protobuf cannot parse with UNIMPLEMENTED and no word. This makes it
// INVALID_ARGUMENT, and names the field where the reason is text that is not UTF-8. It also clips
// every status message to what surely reaches the client. One per server;
// to be given to its builder. The first one takes over protobuf's log.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> ExplainParseErrors();

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_PARSE_ERRORS_H_

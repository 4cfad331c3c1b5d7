// stalled_readers HOST:PORT N: begins N streams that are never read and keeps them until its
// standard input ends. For stalled_readers.sh.
#include <grpcpp/grpcpp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "lowkey/v1/generation.grpc.pb.h"

constexpr int kStreamsPerConnection = 100;  // more wait in the client

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int n_streams = std::atoi(argv[2]);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // the window stays as small as it is
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16384);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection for each channel
  lowkey::v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.set_max_new_tokens(1200);
  request.set_ignore_eos(true);
  request.set_logprobs(20);  // large events, so that gRPC's own buffers hold few
  std::unique_ptr<lowkey::v1::Generation::Stub> stub;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<lowkey::v1::GenerateEvent>>> readers;
  for (int i = 0; i < n_streams; ++i) {
    if (i % kStreamsPerConnection == 0) {
      stub = lowkey::v1::Generation::NewStub(
          grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments));
    }
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub->GenerateStream(contexts.back().get(), request));
  }
  while (std::getchar() != EOF) {
  }
  for (auto& context : contexts) context->TryCancel();
  lowkey::v1::GenerateEvent event;
  for (auto& reader : readers) {
    while (reader->Read(&event)) {
    }
    reader->Finish();
  }
  return 0;
}

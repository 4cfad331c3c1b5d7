#ifndef LOWKEY_TESTS_INTEGRATION_RUNNING_SERVER_H_
#define LOWKEY_TESTS_INTEGRATION_RUNNING_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "bench/random_model.h"
#include "engine/runtime/engine.h"
#include "lowkey/v1/admin.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "lowkey/v1/models.grpc.pb.h"
#include "server/front/server.h"
#include "server/metrics/metrics.h"
#include "server/net/deliveries.h"
#include "server/text/text_service.h"
#include "tests/testing/tiny_model.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// A small random model with the demo model's vocabulary, long enough a context that principal
// blocks are closed, and weights for further mechanisms.
RandomModelOptions ServedModelOptions();

// The whole server in this process: engine, service, network on a free port of the loopback, and
// stubs that reach it through a real socket.
class RunningServer {
 public:
  explicit RunningServer(const ServerOptions& network = {.port = 0});
  ~RunningServer();

  // A connection of its own, so that closing it is a disconnection.
  std::shared_ptr<grpc::Channel> Connect(grpc::ChannelArguments arguments = {}) const;

  v1::StatsResponse Stats() const;

  // Waits until nothing runs; the cache must be empty by then.
  v1::StatsResponse WaitUntilIdle() const;

  Server& server() { return *server_; }

  Metrics metrics{"tiny"};

 private:
  Deliveries deliveries_{/*gathers=*/true};
  TinyModel model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<TextService> service_;
  std::unique_ptr<Server> server_;

 public:
  std::unique_ptr<v1::Generation::Stub> generation;
  std::unique_ptr<v1::Models::Stub> models;
  std::unique_ptr<v1::Admin::Stub> admin;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_RUNNING_SERVER_H_

#ifndef LOWKEY_TESTS_INTEGRATION_RUNNING_SERVER_H_
#define LOWKEY_TESTS_INTEGRATION_RUNNING_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "bench/random_bundle.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/engine.h"
#include "lowkey/v1/admin.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "lowkey/v1/models.grpc.pb.h"
#include "server/grpc/server.h"
#include "server/load_tokenizer.h"
#include "server/metrics/http_server.h"
#include "server/metrics/metrics.h"
#include "server/text_service.h"
#include "tests/testing/source_path.h"
#include "tests/testing/tiny_model.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// A small random model with the demo model's vocabulary, long enough a context that principal
// blocks are closed, and weights for further mechanisms.
inline RandomModelOptions ServedModelOptions() {
  RandomModelOptions options{.config = TinyConfig(), .dtype = DType::kF32, .seed = 5};
  options.config.vocab_size = 4096;
  options.config.context_tokens = 1024;
  return options;
}

// The whole server in this process: engine, service, gRPC on a free port of the loopback, and
// stubs that reach it through a real socket.
class RunningServer {
 public:
  explicit RunningServer(const GrpcServerOptions& network = {.port = 0})
      : model_(ServedModelOptions()) {
    std::filesystem::copy_file(SourcePath("models/tales/tokenizer.model"),
                               model_.File("tokenizer.model"));
    const ModelConfig config = ServedModelOptions().config;
    LK_CHECK(WriteRandomBundle(model_.path(),
                               {config,
                                {{.mechanism = Mechanism::kEfficient, .n_heads = 2},
                                 {.mechanism = Mechanism::kOptimised},
                                 {.mechanism = Mechanism::kSuper, .alignment_tokens = 700},
                                 {.mechanism = Mechanism::kLasso, .lasso = {.iterations = 2}}},
                                3})
                 .ok());
    auto tokenizer = LoadTokenizer(model_.path());
    LK_CHECK(tokenizer.ok());
    tokenizer_ = *std::move(tokenizer);
    EngineOptions options;
    options.n_threads = 2;
    options.cache_bytes = 64 << 20;
    options.max_batch_tokens = 96;
    auto engine = CreateEngine(model_.path(), options, [](int64_t, int64_t) {});
    if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
    LK_CHECK(engine.ok());
    engine_ = *std::move(engine);
    service_ = std::make_unique<TextService>(
        *engine_, *tokenizer_, TextService::Options{"tiny", Defaults(), {}, &metrics});
    metrics.SetEngine(engine_.get());
    auto server = GrpcServer::Start(*service_, network);
    LK_CHECK(server.ok());
    server_ = *std::move(server);
    const auto channel = Connect();
    generation = v1::Generation::NewStub(channel);
    models = v1::Models::NewStub(channel);
    admin = v1::Admin::NewStub(channel);
  }

  std::shared_ptr<grpc::Channel> Connect(grpc::ChannelArguments arguments = {}) const {
    // A connection of its own, so that closing it is a disconnection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    arguments.SetMaxReceiveMessageSize(64 << 20);
    return grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  v1::StatsResponse Stats() const {
    grpc::ClientContext context;
    v1::StatsResponse response;
    EXPECT_TRUE(admin->Stats(&context, {}, &response).ok());
    return response;
  }

  // Waits until nothing runs; the cache must be empty by then.
  v1::StatsResponse WaitUntilIdle() const {
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    v1::StatsResponse stats = Stats();
    while (stats.running_requests() + stats.waiting_requests() > 0 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(2));
      stats = Stats();
    }
    return stats;
  }

  GrpcServer& server() { return *server_; }

  Metrics metrics{"tiny"};

 private:
  TinyModel model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<TextService> service_;
  std::unique_ptr<GrpcServer> server_;

 public:
  std::unique_ptr<v1::Generation::Stub> generation;
  std::unique_ptr<v1::Models::Stub> models;
  std::unique_ptr<v1::Admin::Stub> admin;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_RUNNING_SERVER_H_

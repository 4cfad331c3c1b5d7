#include "tests/integration/running_server.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "bench/random_bundle.h"
#include "engine/base/status_macros.h"
#include "engine/loader/checkpoint.h"
#include "server/model_files/load_tokenizer.h"
#include "tests/testing/source_path.h"

namespace lowkey {

RandomModelOptions ServedModelOptions() {
  RandomModelOptions options{.config = TinyConfig(), .dtype = DType::kF32, .seed = 5};
  options.config.vocab_size = 4096;
  options.config.context_tokens = 1024;
  return options;
}

RunningServer::RunningServer(const ServerOptions& network) : model_(ServedModelOptions()) {
  std::filesystem::copy_file(SourcePath("models/tales/tokenizer.model"),
                             model_.File("tokenizer.model"));
  const ModelConfig config = ServedModelOptions().config;
  LK_CHECK(
      WriteRandomBundle(
          model_.path(),
          {config,
           {{.mechanism = Mechanism::kEfficient, .n_heads = 2},
            {.mechanism = Mechanism::kOptimised},
            {.mechanism = Mechanism::kSuper, .alignment_tokens = 700},
            {.mechanism = Mechanism::kLasso, .lasso = {.iterations = 2}, .perplexity_ratio = 1.1}},
           3})
          .ok());
  auto tokenizer = LoadTokenizer(OpenModelFiles(model_.path()).value());
  LK_CHECK(tokenizer.ok());
  tokenizer_ = *std::move(tokenizer);
  EngineOptions options;
  options.n_threads = 2;
  options.cache_bytes = 64 << 20;
  options.max_batch_tokens = 96;
  options.after_delivery = [this] { deliveries_.Flush(); };
  auto engine =
      CreateEngine(OpenCheckpoint(model_.path()).value(), options, [](int64_t, int64_t) {});
  if (!engine.ok()) std::fprintf(stderr, "%s\n", engine.status().ToString().c_str());
  LK_CHECK(engine.ok());
  engine_ = *std::move(engine);
  service_ = std::make_unique<TextService>(*engine_, *tokenizer_,
                                           TextService::Options{"tiny", Defaults(), {}, &metrics});
  metrics.SetEngine(engine_.get());
  ServerOptions gathering = network;
  gathering.deliveries = &deliveries_;
  auto server = Server::Start(*service_, gathering);
  LK_CHECK(server.ok());
  server_ = *std::move(server);
  const auto channel = Connect();
  generation = v1::Generation::NewStub(channel);
  models = v1::Models::NewStub(channel);
  admin = v1::Admin::NewStub(channel);
}

RunningServer::~RunningServer() = default;

std::shared_ptr<grpc::Channel> RunningServer::Connect(grpc::ChannelArguments arguments) const {
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

v1::StatsResponse RunningServer::Stats() const {
  grpc::ClientContext context;
  v1::StatsResponse response;
  EXPECT_TRUE(admin->Stats(&context, {}, &response).ok());
  return response;
}

v1::StatsResponse RunningServer::WaitUntilIdle() const {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  v1::StatsResponse stats = Stats();
  while (stats.running_requests() + stats.waiting_requests() > 0 && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(2));
    stats = Stats();
  }
  return stats;
}

}  // namespace lowkey

#include "tests/integration/attacks/good_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"

namespace lowkey {
namespace {

namespace health = grpc::health::v1;

constexpr std::chrono::seconds kPatience{20};

// Prompts of different lengths, mechanisms and ways of sampling.
v1::GenerateRequest GoodRequest(int i) {
  v1::GenerateRequest request;
  for (int t = 0; t < 5 + 37 * i; ++t) {
    request.mutable_token_ids()->add_ids(3 + (i * 131 + t * 17) % 4000);
  }
  request.set_max_new_tokens(40 + i);
  request.set_ignore_eos(true);
  request.set_logprobs(0);
  request.mutable_sampling()->set_temperature(i % 3 == 0 ? 0.0f : 0.9f);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(100 + i));
  constexpr const char* kMechanisms[] = {"standard", "atp", "taylorshift"};
  request.mutable_attention()->set_mechanism(kMechanisms[i % 3]);
  return request;
}

std::string ErrorText(const grpc::Status& status) {
  return absl::StrCat("error ", static_cast<int>(status.error_code()), ": ",
                      status.error_message());
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const std::string& authority) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return grpc::CreateCustomChannel(address,
                                   authority.empty() ? grpc::InsecureChannelCredentials()
                                                     : grpc::SslCredentials({authority, "", ""}),
                                   arguments);
}

}  // namespace

struct GoodClient::Stubs {
  std::unique_ptr<v1::Generation::Stub> generation;
  std::unique_ptr<health::Health::Stub> health;
};

GoodClient::GoodClient(const std::string& address, const std::string& authority,
                       const std::string& token)
    : token_(token), stubs_([&] {
        const std::shared_ptr<grpc::Channel> channel = MakeChannel(address, authority);
        return new Stubs{v1::Generation::NewStub(channel), health::Health::NewStub(channel)};
      }()) {}

GoodClient::~GoodClient() = default;

std::string GoodClient::Stream(int i) const {
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + token_);
  auto reader = stubs_->generation->GenerateStream(&context, GoodRequest(i));
  std::string text, tokens;
  int n_final = 0;
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    text += event.delta().text();
    for (const v1::Token& token : event.delta().tokens()) {
      uint32_t bits = 0;
      const float logprob = token.logprob();
      std::memcpy(&bits, &logprob, sizeof(bits));
      absl::StrAppend(&tokens, token.token_id(), ":", absl::Hex(bits), " ");
    }
    n_final += event.has_final() ? 1 : 0;
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok()) return ErrorText(status);
  return absl::StrCat(n_final, " final, ", tokens, text);
}

std::vector<std::string> GoodClient::StreamAll() const {
  std::vector<std::future<std::string>> running;
  for (int i = 0; i < kNumStreams; ++i) {
    running.push_back(std::async(std::launch::async, [this, i] { return Stream(i); }));
  }
  std::vector<std::string> outputs;
  for (auto& stream : running) outputs.push_back(stream.get());
  return outputs;
}

bool GoodClient::CheckHealth() const {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  context.set_wait_for_ready(true);
  health::HealthCheckResponse response;
  return stubs_->health->Check(&context, {}, &response).ok() &&
         response.status() == health::HealthCheckResponse::SERVING;
}

GoodClient::Answer GoodClient::Generate(const v1::GenerateRequest& request,
                                        Compression compression) const {
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer " + token_);
  if (compression == Compression::kGzip) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::GenerateResponse response;
  const grpc::Status status = stubs_->generation->Generate(&context, request, &response);
  return {static_cast<int>(status.error_code()), status.error_message()};
}

}  // namespace lowkey

// The methods of the inference service that answer once.
#include "server/api/kserve/services.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/front/call_guard.h"
#include "tests/server/api/kserve/fixture.h"
#include "tests/server/api/kserve/requests.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ServicesTest : public InferenceTest {
 protected:
  // Calls a method; the status is in status_.
  template <typename Response>
  Response Call(const std::string& method, const google::protobuf::Message& request) {
    FakeCall call(*loop_, registry_, method);
    call.Send(request.SerializeAsString());
    call.HalfClose();
    status_ = call.AwaitStatus();
    Response response;
    if (!status_.ok()) return response;
    EXPECT_TRUE(response.ParseFromString(call.Written().at(0)));
    return response;
  }

  // Calls ModelInfer; the engine gives the text's bytes as tokens.
  inference::ModelInferResponse Infer(const RequestBuilder& builder, const std::string& text,
                                      absl::Status end = absl::OkStatus()) {
    FakeCall call(*loop_, registry_, "ModelInfer");
    call.Send(builder.Bytes());
    call.HalfClose();
    EXPECT_TRUE(engine_.WaitForRunning(1));
    for (const RequestId id : engine_.ids()) {
      request_ = engine_.request(id);
      for (const int32_t token : BytePieces(text)) {
        SampledToken sampled;
        sampled.token = token;
        sampled.logprob = -0.5f;
        sampled.top_logprobs = {{token, -0.5f}, {5, -1.0f}};
        for (int32_t choice = 0; choice < request_.n; ++choice) engine_.Emit(id, sampled, choice);
      }
      engine_.Finish(id, end.ok() ? FinishReason::kLength : FinishReason::kDeadline, end);
    }
    status_ = call.AwaitStatus();
    inference::ModelInferResponse response;
    if (!status_.ok()) return response;
    EXPECT_TRUE(response.ParseFromString(call.Written().at(0)));
    return response;
  }

  absl::Status status_;
  EngineRequest request_;
};

TEST_F(ServicesTest, EveryMethodHasAHandler) { EXPECT_TRUE(registry_.CheckComplete().ok()); }

TEST_F(ServicesTest, LiveAndReadyNeedNoCredentials) {
  EXPECT_TRUE(
      Call<inference::ServerLiveResponse>("ServerLive", inference::ServerLiveRequest()).live());
  EXPECT_TRUE(
      Call<inference::ServerReadyResponse>("ServerReady", inference::ServerReadyRequest()).ready());
  is_ready_ = false;
  EXPECT_TRUE(
      Call<inference::ServerLiveResponse>("ServerLive", inference::ServerLiveRequest()).live());
  EXPECT_FALSE(
      Call<inference::ServerReadyResponse>("ServerReady", inference::ServerReadyRequest()).ready());
  const std::string service = "/inference.GRPCInferenceService/";
  EXPECT_EQ(RightFor(service + "ServerLive"), std::nullopt);
  EXPECT_EQ(RightFor(service + "ServerReady"), std::nullopt);
  EXPECT_EQ(RightFor(service + "ModelMetadata"), Right::kRead);
  EXPECT_EQ(RightFor(service + "ModelInfer"), Right::kGenerate);
  EXPECT_EQ(RightFor(service + "ModelStreamInfer"), Right::kGenerate);
  EXPECT_EQ(RightFor(service + "RepositoryModelLoad"), Right::kAdmin);
}

TEST_F(ServicesTest, OnlyTheServedModelIsReady) {
  inference::ModelReadyRequest request;
  const auto is_ready = [&] {
    const auto response = Call<inference::ModelReadyResponse>("ModelReady", request);
    EXPECT_TRUE(status_.ok()) << status_;
    return response.ready();
  };
  EXPECT_TRUE(is_ready());
  request.set_name("tales");
  request.set_version("1");
  EXPECT_TRUE(is_ready());
  request.set_version("2");
  EXPECT_FALSE(is_ready());
  request.clear_version();
  request.set_name("other");
  EXPECT_FALSE(is_ready());
  request.set_name("tales");
  is_ready_ = false;
  EXPECT_FALSE(is_ready());
}

TEST_F(ServicesTest, DescribesTheServerAndItsTensors) {
  const auto server =
      Call<inference::ServerMetadataResponse>("ServerMetadata", inference::ServerMetadataRequest());
  EXPECT_EQ(server.name(), "lowkey");
  EXPECT_THAT(server.extensions(), ElementsAre("model_configuration", "statistics"));

  inference::ModelMetadataRequest request;
  request.set_name("tales");
  const auto model = Call<inference::ModelMetadataResponse>("ModelMetadata", request);
  EXPECT_EQ(model.name(), "tales");
  EXPECT_THAT(model.versions(), ElementsAre("1"));
  ASSERT_FALSE(model.inputs().empty());
  EXPECT_EQ(model.inputs(0).name(), "text_input");
  EXPECT_EQ(model.inputs(0).datatype(), "BYTES");
  EXPECT_THAT(model.inputs(0).shape(), ElementsAre(1));
  EXPECT_EQ(model.outputs(0).name(), "text_output");

  const auto config = Call<inference::ModelConfigResponse>("ModelConfig", request).config();
  EXPECT_EQ(config.max_batch_size(), 0);
  EXPECT_TRUE(config.model_transaction_policy().decoupled());
  ASSERT_EQ(config.input_size(), model.inputs_size());
  ASSERT_EQ(config.output_size(), model.outputs_size());
  for (int i = 0; i < config.input_size(); ++i) {
    EXPECT_EQ(config.input(i).name(), model.inputs(i).name());
    EXPECT_EQ(config.input(i).optional(), i > 0);
  }
  EXPECT_EQ(config.parameters().at("context_tokens").string_value(), "2048");

  request.set_name("other");
  Call<inference::ModelMetadataResponse>("ModelMetadata", request);
  EXPECT_EQ(status_.code(), absl::StatusCode::kNotFound);
  Call<inference::ModelConfigResponse>("ModelConfig", request);
  EXPECT_EQ(status_.code(), absl::StatusCode::kNotFound);
  Call<inference::ModelStatisticsResponse>("ModelStatistics", request);
  EXPECT_EQ(status_.code(), absl::StatusCode::kNotFound);
}

TEST_F(ServicesTest, RepositoryHasOneModel) {
  inference::RepositoryIndexRequest request;
  const auto list = [&] {
    std::string text;
    const auto index = Call<inference::RepositoryIndexResponse>("RepositoryIndex", request);
    for (const auto& model : index.models()) {
      text += model.name() + " " + model.version() + " " + model.state();
    }
    return text;
  };
  EXPECT_EQ(list(), "tales 1 READY");
  is_ready_ = false;
  EXPECT_EQ(list(), "tales 1 UNAVAILABLE");
  request.set_ready(true);
  EXPECT_EQ(list(), "");
  is_ready_ = true;
  request.set_repository_name("elsewhere");
  EXPECT_EQ(list(), "");
}

TEST_F(ServicesTest, OneModelForALifetimeAndNoSharedMemory) {
  for (const char* method :
       {"RepositoryModelLoad", "RepositoryModelUnload", "SystemSharedMemoryStatus",
        "CudaSharedMemoryRegister", "TraceSetting", "LogSettings"}) {
    Call<inference::RepositoryModelLoadResponse>(method, inference::RepositoryModelLoadRequest());
    EXPECT_EQ(status_.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status_.message()), HasSubstr(method));
  }
}

TEST_F(ServicesTest, InferAnswersOnceWithRawOutputs) {
  RequestBuilder builder;
  builder.proto.set_id("mine");
  builder.proto.set_model_name("tales");
  builder.Text("text_input", "Once")
      .Flag("return_finish_reason", true)
      .Flag("return_num_input_tokens", true)
      .Flag("return_num_output_tokens", true)
      .Flag("return_cumulative_logprob", true)
      .Flag("return_logprobs", true)
      .Parameter("seed", int64_t{7});
  const auto response = Infer(builder, " up");
  ASSERT_TRUE(status_.ok()) << status_;
  EXPECT_EQ(response.id(), "mine");
  EXPECT_EQ(response.model_name(), "tales");
  EXPECT_EQ(response.raw_output_contents_size(), response.outputs_size());
  EXPECT_THAT(TextsOf(response, "text_output"), ElementsAre("Once up"));
  EXPECT_THAT(TextsOf(response, "finish_reason"), ElementsAre("length"));
  EXPECT_THAT(NumbersOf<uint32_t>(response, "num_output_tokens"), ElementsAre(3));
  EXPECT_THAT(NumbersOf<uint32_t>(response, "num_input_tokens"),
              ElementsAre(request_.prompt.size()));
  EXPECT_THAT(NumbersOf<float>(response, "cumulative_logprob"), ElementsAre(-1.5f));
  const std::string id = std::to_string(BytePieces("u")[0]);
  EXPECT_THAT(TextsOf(response, "logprobs"),
              ElementsAre(HasSubstr("{\"" + id +
                                    "\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"u\"},"
                                    "\"5\":{\"logprob\":-1.0,\"rank\":2,")));
  EXPECT_EQ(response.parameters().at("seed").string_param(), "7");
  EXPECT_EQ(response.parameters().at("attention").string_param(), "standard");
  EXPECT_EQ(request_.sampling.logprobs, 0);
}

TEST_F(ServicesTest, ChoicesAreElements) {
  RequestBuilder builder = Story();
  builder.Text("sampling_parameters", R"({"n": 3})");
  EXPECT_THAT(TextsOf(Infer(builder, "ab"), "text_output"), ElementsAre("ab", "ab", "ab"));
}

TEST_F(ServicesTest, RefusedAndFailedCallsHaveTheirStatus) {
  FakeCall call(*loop_, registry_, "ModelInfer");
  RequestBuilder builder = Story();
  builder.proto.set_model_name("other");
  call.Send(builder.Bytes());
  call.HalfClose();
  EXPECT_EQ(call.AwaitStatus().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(call.Written(), IsEmpty());

  Infer(Story(), "ab", absl::DeadlineExceededError("too late"));
  EXPECT_EQ(status_.code(), absl::StatusCode::kDeadlineExceeded);

  FakeCall streamed(*loop_, registry_, "ModelInfer");
  streamed.Send(StreamedStory().Bytes());
  streamed.HalfClose();
  EXPECT_EQ(streamed.AwaitStatus().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServicesTest, StatisticsCountRequests) {
  Infer(Story(), "ab");
  Infer(Story(), "ab");
  Infer(Story(), "ab", absl::DeadlineExceededError("too late"));
  const auto response = Call<inference::ModelStatisticsResponse>(
      "ModelStatistics", inference::ModelStatisticsRequest());
  ASSERT_EQ(response.model_stats_size(), 1);
  const auto& statistics = response.model_stats(0);
  EXPECT_EQ(statistics.name(), "tales");
  EXPECT_EQ(statistics.version(), "1");
  EXPECT_EQ(statistics.inference_count(), 2u);
  EXPECT_EQ(statistics.inference_stats().success().count(), 2u);
  EXPECT_GT(statistics.inference_stats().success().ns(), 0u);
  EXPECT_EQ(statistics.inference_stats().fail().count(), 1u);
  EXPECT_EQ(statistics.inference_stats().queue().count(), 2u);
  EXPECT_GT(statistics.last_inference(), 0u);
}

TEST_F(ServicesTest, DeadlineOfTheRequestCounts) {
  RequestBuilder builder = Story();
  builder.Parameter("timeout", int64_t{60'000'000});
  Infer(builder, "ab");
  EXPECT_LT(request_.deadline, absl::Now() + absl::Seconds(61));
}

}  // namespace
}  // namespace lowkey

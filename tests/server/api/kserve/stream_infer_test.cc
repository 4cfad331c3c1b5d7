// ModelStreamInfer: many requests on one call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/api/kserve/fixture.h"
#include "tests/server/api/kserve/requests.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Answer = inference::ModelStreamInferResponse;

class StreamInferTest : public InferenceTest {
 protected:
  static std::vector<Answer> Parsed(const std::vector<std::string>& written) {
    std::vector<Answer> answers;
    for (const std::string& bytes : written) {
      EXPECT_TRUE(answers.emplace_back().ParseFromString(bytes));
    }
    return answers;
  }
  // "id text", with "." after the last answer of a request; "id !" for an error.
  static std::vector<std::string> Summary(const std::vector<std::string>& written) {
    std::vector<std::string> lines;
    for (const Answer& answer : Parsed(written)) {
      const auto& response = answer.infer_response();
      const auto texts = TextsOf(response, "text_output");
      std::string line = response.id();
      if (!answer.error_message().empty()) line += " !";
      if (!texts.empty()) line += " " + texts[0];
      if (response.parameters().at("triton_final_response").bool_param()) line += ".";
      lines.push_back(line);
    }
    return lines;
  }

  void EmitText(RequestId id, const std::string& text) {
    for (const int32_t token : BytePieces(text)) engine_.Emit(id, token);
  }
  RequestId NewestOf(size_t n) {
    EXPECT_TRUE(engine_.WaitForRunning(n));
    return engine_.ids().back();
  }
};

TEST_F(StreamInferTest, AnswersAsTokensComeAndSaysWhichIsTheLast) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  call.Send(StreamedStory("s").Bytes());
  const RequestId id = NewestOf(1);
  EmitText(id, "a");
  EXPECT_THAT(Summary(call.AwaitWritten(1)), ElementsAre("s a"));
  EmitText(id, "b");
  call.AwaitWritten(2);
  engine_.Finish(id, FinishReason::kLength);
  EXPECT_THAT(Summary(call.AwaitWritten(3)), ElementsAre("s a", "s b", "s ."));
  EXPECT_FALSE(call.Status().has_value());
  call.HalfClose();
  EXPECT_TRUE(call.AwaitStatus().ok());
}

TEST_F(StreamInferTest, LastAnswerIsEmptyWhereAskedFor) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  RequestBuilder builder = StreamedStory("s");
  builder.Parameter("triton_enable_empty_final_response", true);
  call.Send(builder.Bytes());
  RequestId id = NewestOf(1);
  EmitText(id, "a");
  call.AwaitWritten(1);
  engine_.Finish(id, FinishReason::kLength);
  EXPECT_THAT(Summary(call.AwaitWritten(2)), ElementsAre("s a", "s."));
  EXPECT_EQ(Parsed(call.Written())[1].infer_response().outputs_size(), 0);

  // What only the end knows comes in an answer before it.
  builder.Flag("return_finish_reason", true);
  call.Send(builder.Bytes());
  id = NewestOf(1);
  engine_.Finish(id, FinishReason::kStopToken);
  const auto answers = Parsed(call.AwaitWritten(4));
  EXPECT_THAT(TextsOf(answers[2].infer_response(), "finish_reason"), ElementsAre("stop"));
  EXPECT_THAT(Summary(call.Written()), ElementsAre("s a", "s.", "s ", "s."));
}

TEST_F(StreamInferTest, WithoutStreamARequestHasOneAnswer) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  RequestBuilder builder = Story("w");
  call.Send(builder.Bytes());
  RequestId id = NewestOf(1);
  EmitText(id, "ab");
  engine_.Finish(id, FinishReason::kLength);
  EXPECT_THAT(Summary(call.AwaitWritten(1)), ElementsAre("w ab."));
  builder.Parameter("triton_enable_empty_final_response", true);
  call.Send(builder.Bytes());
  id = NewestOf(1);
  EmitText(id, "cd");
  engine_.Finish(id, FinishReason::kLength);
  EXPECT_THAT(Summary(call.AwaitWritten(3)), ElementsAre("w ab.", "w cd", "w."));
}

TEST_F(StreamInferTest, TooLongAnAnswerIsAnErrorOfItsRequest) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  call.Send(Story("long").Bytes());
  const RequestId id = NewestOf(1);
  SampledToken token = {300, -0.1f, {}};
  for (int32_t i = 0; i < 20; ++i) token.top_logprobs.push_back({300 + i, -0.1f});
  size_t n_emitted = 0;
  while (call.Written().empty() && n_emitted < 300'000) {
    engine_.Emit(id, token);
    ++n_emitted;
  }
  EXPECT_LT(n_emitted, 300'000u);
  EXPECT_THAT(Parsed(call.AwaitWritten(1))[0].error_message(), HasSubstr("answer: "));
  engine_.Finish(id, FinishReason::kCancelled, absl::CancelledError("cancelled"));
  call.Send(StreamedStory("next").Bytes());
  const RequestId next = NewestOf(1);
  EmitText(next, "a");
  EXPECT_THAT(Summary(call.AwaitWritten(2)), ElementsAre("long !.", "next a"));
}

TEST_F(StreamInferTest, AnswersOfConcurrentRequestsHaveTheirIds) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  call.Send(StreamedStory("a").Bytes());
  const RequestId a = NewestOf(1);
  call.Send(StreamedStory("b").Bytes());
  const RequestId b = NewestOf(2);
  EmitText(b, "1");
  call.AwaitWritten(1);
  EmitText(a, "2");
  call.AwaitWritten(2);
  engine_.Finish(b, FinishReason::kLength);
  call.AwaitWritten(3);
  EmitText(a, "3");
  call.AwaitWritten(4);
  call.HalfClose();
  EXPECT_FALSE(call.Status().has_value());
  engine_.Finish(a, FinishReason::kLength);
  EXPECT_TRUE(call.AwaitStatus().ok());
  EXPECT_THAT(Summary(call.Written()), ElementsAre("b 1", "a 2", "b .", "a 3", "a ."));
}

TEST_F(StreamInferTest, ErrorsLeaveTheStreamOpen) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  RequestBuilder wrong = StreamedStory("bad");
  wrong.Text("nonsense", "");
  call.Send(wrong.Bytes());
  const Answer refusal = Parsed(call.AwaitWritten(1))[0];
  EXPECT_THAT(refusal.error_message(), HasSubstr("[INVALID_ARGUMENT] inputs: \"nonsense\""));
  EXPECT_EQ(refusal.infer_response().id(), "bad");

  call.Send("\xFF\xFF");  // no protobuf
  EXPECT_THAT(Parsed(call.AwaitWritten(2))[1].error_message(), HasSubstr("message: malformed"));

  call.Send(StreamedStory("late").Bytes());
  const RequestId late = NewestOf(1);
  EmitText(late, "a");
  call.AwaitWritten(3);
  engine_.Finish(late, FinishReason::kDeadline, absl::DeadlineExceededError("too late"));
  EXPECT_THAT(Summary(call.AwaitWritten(4)), ElementsAre("bad !.", " !.", "late a", "late !."));

  call.Send(StreamedStory("good").Bytes());
  engine_.Finish(NewestOf(1), FinishReason::kLength);
  EXPECT_EQ(Summary(call.AwaitWritten(5))[4], "good .");
  EXPECT_FALSE(call.Status().has_value());
}

TEST_F(StreamInferTest, ErrorsEndTheStreamWhereAskedFor) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer", /*ends_at_error=*/true);
  call.Send(StreamedStory("other").Bytes());
  NewestOf(1);
  RequestBuilder wrong = StreamedStory("bad");
  wrong.Text("nonsense", "");
  call.Send(wrong.Bytes());
  EXPECT_EQ(call.AwaitStatus().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(engine_.WaitForRunning(0));  // the other one is cancelled
  call.Send(StreamedStory("after").Bytes());
  EXPECT_THAT(call.Written(), IsEmpty());
}

TEST_F(StreamInferTest, SixtyFiveRequestsAreOneTooMany) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  for (int i = 0; i < 64; ++i) call.Send(StreamedStory(absl::StrCat("r", i)).Bytes());
  EXPECT_TRUE(engine_.WaitForRunning(64));
  EXPECT_THAT(call.Written(), IsEmpty());
  call.Send(StreamedStory("r64").Bytes());
  const Answer refusal = Parsed(call.AwaitWritten(1))[0];
  EXPECT_THAT(refusal.error_message(), HasSubstr("[RESOURCE_EXHAUSTED] requests in flight"));
  EXPECT_EQ(refusal.infer_response().id(), "r64");
  // One that has ended makes room.
  engine_.Finish(engine_.ids().front(), FinishReason::kLength);
  call.AwaitWritten(2);
  call.Send(StreamedStory("r65").Bytes());
  EXPECT_TRUE(engine_.WaitForRunning(64));
  EXPECT_EQ(call.Written().size(), 2u);
}

TEST_F(StreamInferTest, CancellationEndsAllRequests) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  for (int i = 0; i < 10; ++i) call.Send(StreamedStory().Bytes());
  EXPECT_TRUE(engine_.WaitForRunning(10));
  call.End();
  EXPECT_TRUE(engine_.WaitForRunning(0));
  EXPECT_EQ(engine_.Stats().n_cancelled_requests, 10);
  EXPECT_TRUE(generation_.live_calls->AwaitNone(absl::Now() + absl::Seconds(20)));
  EXPECT_EQ(inference_.counters->ToProto().inference_stats().fail().count(), 10u);
}

TEST_F(StreamInferTest, ReaderThatStopsPausesEveryRequest) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  call.Send(StreamedStory("a").Bytes());
  const RequestId a = NewestOf(1);
  call.Send(StreamedStory("b").Bytes());
  const RequestId b = NewestOf(2);
  call.SetUnsent(1 << 20);
  int n_a = 0, n_b = 0;
  while (n_a < 1000 && engine_.Emit(a, BytePieces("x")[0]) == SinkAnswer::kContinue) ++n_a;
  while (n_b < 1000 && engine_.Emit(b, BytePieces("y")[0]) == SinkAnswer::kContinue) ++n_b;
  EXPECT_LT(n_a, 1000);
  EXPECT_LT(n_b, 1000);
  EXPECT_THAT(call.Written(), IsEmpty());
  call.SetUnsent(0);
  EXPECT_TRUE(engine_.WaitForResumes(2));
  // What waited comes joined, and whole.
  engine_.Finish(a, FinishReason::kLength);
  engine_.Finish(b, FinishReason::kLength);
  call.HalfClose();
  EXPECT_TRUE(call.AwaitStatus().ok());
  std::string text;
  for (const Answer& answer : Parsed(call.Written())) {
    text += TextsOf(answer.infer_response(), "text_output")[0];
  }
  EXPECT_EQ(std::count(text.begin(), text.end(), 'x'), n_a + 1);
  EXPECT_EQ(std::count(text.begin(), text.end(), 'y'), n_b + 1);
}

TEST_F(StreamInferTest, ReaderWhoReadsNoErrorsIsCutOff) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  call.Send(StreamedStory().Bytes());
  NewestOf(1);
  call.SetUnsent((1 << 20) + 1);
  call.Send("\xFF\xFF");
  EXPECT_EQ(call.AwaitStatus().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(engine_.WaitForRunning(0));
}

TEST_F(StreamInferTest, AnswersOfSeveralChoicesHaveAnElementForEach) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  RequestBuilder builder = StreamedStory();
  builder.Text("sampling_parameters", R"({"n": 2})").Flag("return_num_output_tokens", true);
  call.Send(builder.Bytes());
  const RequestId id = NewestOf(1);
  engine_.Emit(id, BytePieces("x")[0], 1);
  const auto answer = Parsed(call.AwaitWritten(1))[0].infer_response();
  EXPECT_THAT(TextsOf(answer, "text_output"), ElementsAre("", "x"));
  EXPECT_THAT(NumbersOf<uint32_t>(answer, "num_output_tokens"), ElementsAre(0, 1));
}

TEST_F(StreamInferTest, ServerThatStopsAnswersWhatIsInFlightAndEndsTheStream) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  FakeCall idle(*loop_, registry_, "ModelStreamInfer");
  call.Send(StreamedStory("a").Bytes());
  const RequestId id = NewestOf(1);
  inference_.streams->Stop();
  EXPECT_EQ(idle.AwaitStatus().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(call.Status().has_value());
  engine_.Finish(id, FinishReason::kLength);
  EXPECT_EQ(call.AwaitStatus().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Summary(call.Written()), ElementsAre("a ."));
  FakeCall later(*loop_, registry_, "ModelStreamInfer");
  EXPECT_EQ(later.AwaitStatus().code(), absl::StatusCode::kUnavailable);
}

TEST_F(StreamInferTest, StreamWithoutRequestsEndsWithItsClient) {
  FakeCall call(*loop_, registry_, "ModelStreamInfer");
  call.HalfClose();
  EXPECT_TRUE(call.AwaitStatus().ok());
}

}  // namespace
}  // namespace lowkey

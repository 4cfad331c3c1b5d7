#include "server/text/text_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/metrics/metrics.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class TextSinkTest : public ::testing::Test {
 protected:
  std::unique_ptr<TextSink> MakeSink(TextSink::Options options) {
    auto claim = live_->Take({}, "request");
    return std::make_unique<TextSink>(TestTokenizer(), std::move(options), *std::move(claim),
                                      std::make_unique<RecordingListener>(heard_));
  }

  // Feeds the bytes of `text` one token each until the sink says stop.
  static SinkAnswer Feed(TextSink& sink, const std::string& text, int32_t choice = 0) {
    SinkAnswer answer = SinkAnswer::kContinue;
    for (int32_t id : BytePieces(text)) {
      SampledToken token;
      token.token = id;
      answer = sink.OnToken(choice, token);
      if (answer == SinkAnswer::kStop) break;
    }
    return answer;
  }

  static FinalEvent Ended(FinishReason reason, int32_t n_choices = 1) {
    FinalEvent event;
    event.finish_reasons.assign(static_cast<size_t>(n_choices), reason);
    event.n_generated.assign(static_cast<size_t>(n_choices), 3);
    return event;
  }

  std::shared_ptr<LiveRequests> live_ = std::make_shared<LiveRequests>();
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
};

TEST_F(TextSinkTest, GivesTheTextOfTheTokens) {
  auto sink = MakeSink({.model = "m"});
  EXPECT_EQ(Feed(*sink, "Hello, fox"), SinkAnswer::kContinue);
  sink->OnDone(Ended(FinishReason::kLength));
  EXPECT_EQ(heard_->Text(), "Hello, fox");
  ASSERT_EQ(heard_->results.size(), 1u);
  EXPECT_EQ(heard_->results[0].model, "m");
  EXPECT_EQ(heard_->results[0].request_id, "request");
  EXPECT_EQ(heard_->results[0].choices[0].reason, FinishReason::kLength);
  EXPECT_EQ(heard_->results[0].choices[0].n_generated, 3);
}

TEST_F(TextSinkTest, ATokenThatEndsTheTextIsNoPartOfIt) {
  auto sink = MakeSink({.silent_tokens = {BytePieces("!")[0]}});
  Feed(*sink, "{}!");
  sink->OnDone(Ended(FinishReason::kStopToken));
  EXPECT_EQ(heard_->Text(), "{}");
}

TEST_F(TextSinkTest, NeverEmitsHalfACharacter) {
  auto sink = MakeSink({});
  Feed(*sink, "a\xe2\x82\xac");  // the euro sign: three tokens
  sink->OnDone(Ended(FinishReason::kLength));
  EXPECT_EQ(heard_->Text(), "a€");
  for (const ChoiceDelta& delta : heard_->deltas) {
    EXPECT_THAT(delta.text, ::testing::AnyOf("", "a", "€"));
  }
}

TEST_F(TextSinkTest, StopTextAcrossTokensEndsTheChoiceAndIsNotShown) {
  auto sink = MakeSink({.stop_texts = {"THE END"}});
  EXPECT_EQ(Feed(*sink, "Once. THE END and more"), SinkAnswer::kStop);
  sink->OnDone(Ended(FinishReason::kStoppedBySink));
  EXPECT_EQ(heard_->Text(), "Once. ");
  EXPECT_EQ(heard_->results[0].choices[0].reason, FinishReason::kStoppedBySink);
  EXPECT_EQ(heard_->results[0].choices[0].stop_text, "THE END");
}

TEST_F(TextSinkTest, HeldTextComesOutWhenTheStopWasNotCompleted) {
  auto sink = MakeSink({.stop_texts = {"THE END"}});
  Feed(*sink, "Once. THE");
  EXPECT_EQ(heard_->Text(), "Once. ");
  sink->OnDone(Ended(FinishReason::kLength));
  EXPECT_EQ(heard_->Text(), "Once. THE");
}

TEST_F(TextSinkTest, StopMatchedOnTheLastTokenWinsOverLength) {
  auto sink = MakeSink({.stop_texts = {"!"}});
  Feed(*sink, "Oh!");
  sink->OnDone(Ended(FinishReason::kLength));
  EXPECT_EQ(heard_->Text(), "Oh");
  EXPECT_EQ(heard_->results[0].choices[0].reason, FinishReason::kStoppedBySink);
}

TEST_F(TextSinkTest, TokensAreReportedEvenWhileTheirTextIsHeld) {
  auto sink = MakeSink({.stop_texts = {"ab"}});
  Feed(*sink, "a");
  ASSERT_EQ(heard_->deltas.size(), 1u);
  EXPECT_TRUE(heard_->deltas[0].token.has_value());
  EXPECT_EQ(heard_->deltas[0].text, "");
}

TEST_F(TextSinkTest, ChoicesAreMatchedApart) {
  auto sink = MakeSink({.n_choices = 2, .stop_texts = {"xy"}});
  Feed(*sink, "ax", 0);
  Feed(*sink, "y", 1);
  Feed(*sink, "z", 0);
  sink->OnDone(Ended(FinishReason::kLength, 2));
  EXPECT_EQ(heard_->Text(0), "axz");
  EXPECT_EQ(heard_->Text(1), "y");
}

TEST_F(TextSinkTest, TokenBeyondTheTokenizerHasNoText) {
  auto sink = MakeSink({});
  SampledToken token;
  token.token = TestTokenizer().vocab_size() + 5;
  sink->OnToken(0, token);
  sink->OnDone(Ended(FinishReason::kLength));
  EXPECT_EQ(heard_->Text(), "");
  EXPECT_EQ(heard_->deltas.size(), 1u);
}

TEST_F(TextSinkTest, ControlPiecesAreTextWhereAskedFor) {
  auto sink = MakeSink({.stop_texts = {"a<s>"}, .shown_pieces = {"<s>"}});
  SampledToken bos, eos;
  bos.token = 1;
  eos.token = 2;
  EXPECT_EQ(sink->OnToken(0, bos), SinkAnswer::kContinue);
  EXPECT_EQ(sink->OnToken(0, eos), SinkAnswer::kContinue);
  Feed(*sink, "xa");
  EXPECT_EQ(sink->OnToken(0, bos), SinkAnswer::kStop);
  sink->OnDone(Ended(FinishReason::kStoppedBySink));
  EXPECT_EQ(heard_->Text(), "<s>x");
}

TEST_F(TextSinkTest, PassesOnThatNobodyReads) {
  heard_->answer = SinkAnswer::kStop;
  auto sink = MakeSink({});
  EXPECT_EQ(Feed(*sink, "a"), SinkAnswer::kStop);
  sink->OnDone(Ended(FinishReason::kStoppedBySink));
  EXPECT_EQ(heard_->results[0].choices[0].reason, FinishReason::kCancelled);
}

TEST_F(TextSinkTest, IdIsFreeBeforeTheEndIsHeard) {
  struct Reuser : GenerationListener {
    explicit Reuser(LiveRequests& live) : live(live) {}
    SinkAnswer OnDelta(ChoiceDelta) override { return SinkAnswer::kContinue; }
    void OnDone(const GenerationResult& result) override {
      EXPECT_TRUE(live.Take({}, result.request_id).ok());
    }
    LiveRequests& live;
  };
  TextSink sink(TestTokenizer(), {}, *live_->Take({}, "request"), std::make_unique<Reuser>(*live_));
  sink.OnDone(Ended(FinishReason::kLength));
}

TEST_F(TextSinkTest, ReportSaysWhoChoseTheMechanism) {
  FinalEvent event = Ended(FinishReason::kLength);
  event.attention.mechanism = Mechanism::kAtp;
  MakeSink({.is_mechanism_requested = true})->OnDone(event);
  EXPECT_EQ(heard_->results[0].engine.attention.reason, "requested");
  event.attention.mechanism = Mechanism::kStandard;
  MakeSink({})->OnDone(event);
  EXPECT_EQ(heard_->results[1].engine.attention.reason, "default");
}

TEST_F(TextSinkTest, EveryTokenAndTheEndAreObserved) {
  Metrics metrics("m");
  auto sink = MakeSink({.n_choices = 2, .metrics = &metrics});
  Feed(*sink, "abc", 0);
  Feed(*sink, "ab", 1);
  const auto count = [&](const std::string& name) {
    return "vllm:" + name + "_seconds_count{engine=\"0\",model_name=\"m\"} ";
  };
  EXPECT_THAT(metrics.Text(), HasSubstr(count("e2e_request_latency") + "0\n"));
  sink->OnDone(Ended(FinishReason::kLength, 2));
  EXPECT_THAT(metrics.Text(), HasSubstr(count("time_to_first_token") + "1\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr(count("inter_token_latency") + "3\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr(count("e2e_request_latency") + "1\n"));
  EXPECT_THAT(metrics.Text(), HasSubstr("finished_reason=\"length\"} 2\n"));
}

}  // namespace
}  // namespace lowkey

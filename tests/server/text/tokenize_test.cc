// Tokenize and Detokenize, and the cost of texts that other calls bring.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/request/limits.h"
#include "server/text/text_service.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kDeadline = absl::StatusCode::kDeadlineExceeded;
constexpr absl::StatusCode kCancelled = absl::StatusCode::kCancelled;
constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// The demo model's tokenizer; counts the bytes that are encoded. One id decodes to a long text.
class CountingTokenizer : public Tokenizer {
 public:
  CountingTokenizer() : Tokenizer({}) {
    if (!ResolveSpecials({.bos_id = 1, .eos_id = 2, .adds_bos = true}, {}).ok()) std::abort();
  }

  std::optional<int32_t> PieceToId(std::string_view piece) const override {
    return TestTokenizer().PieceToId(piece);
  }
  bool IsControl(int32_t id) const override { return TestTokenizer().IsControl(id); }
  int32_t vocab_size() const override { return TestTokenizer().vocab_size(); }
  std::optional<size_t> max_bytes_per_id() const override {
    return TestTokenizer().max_bytes_per_id();
  }

  size_t n_bytes() const { return n_bytes_; }

 private:
  absl::Status EncodeText(std::string_view text, const EncodeOptions& options,
                          std::vector<int32_t>& ids) const override {
    n_bytes_ += text.size();
    EncodeOptions plain = options;
    plain.add_bos = plain.add_eos = false;
    const auto encoded = TestTokenizer().Encode(text, plain);
    if (encoded.ok()) ids.insert(ids.end(), encoded->begin(), encoded->end());
    return encoded.status();
  }
  Surface SurfaceOf(int32_t) const override { return {Surface::Kind::kText, long_text_}; }
  std::string_view PieceOf(int32_t) const override { return long_text_; }

  const std::string long_text_ = std::string(1 << 20, 'x');
  mutable size_t n_bytes_ = 0;
};

std::string Words(size_t n_bytes) {
  std::string text;
  for (int i = 0; text.size() < n_bytes; ++i) {
    text += i % 3 == 0 ? "Once upon " : i % 3 == 1 ? "a time, " : std::to_string(i) + "\n";
  }
  return text;
}

class TokenizeTest : public ::testing::Test {
 protected:
  absl::StatusOr<TokenizeResult> Tokenize(const std::string& text) const {
    return service_.Tokenize({.input = text});
  }

  FakeEngine engine_;
  CountingTokenizer counting_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}}};
  TextService counted_{engine_, counting_, {"tales", {}}};
};

TEST_F(TokenizeTest, ReturnsWhatTheModelIsFed) {
  EXPECT_EQ(Tokenize("Once upon")->tokens, *TestTokenizer().Encode("Once upon"));
  EXPECT_THAT(Tokenize("")->tokens, ElementsAre(1));
  const auto bare = service_.Tokenize({.input = std::string("Once upon"), .add_bos = false});
  EXPECT_EQ(bare->tokens, *TestTokenizer().Encode("Once upon", {.add_bos = false}));
  EXPECT_EQ(service_.Detokenize({.tokens = bare->tokens}).value(), "Once upon");
}

TEST_F(TokenizeTest, NamesTheFieldOfAnError) {
  EXPECT_EQ(service_.Tokenize({.model = "other"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(service_.Detokenize({.model = "other"}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(Tokenize("a\xff").status().message()), HasSubstr("text: "));
  EXPECT_THAT(std::string(service_.Detokenize({.tokens = {5, -1}}).status().message()),
              HasSubstr("token_ids[1]: -1"));
}

TEST_F(TokenizeTest, RefusesLongTextsUnread) {
  const std::string longest = Words(kMaxTokenizeBytes).substr(0, kMaxTokenizeBytes);
  EXPECT_EQ(counted_.Tokenize({.input = longest + "a"}).status().code(), kInvalid);
  EXPECT_EQ(counting_.n_bytes(), 0u);
  EXPECT_TRUE(Tokenize(longest).ok());
}

TEST_F(TokenizeTest, RefusesConversationsThatRenderToLongTexts) {
  const auto chat = [](size_t n_bytes) {
    return Conversation{.messages = {{.role = "user", .content = std::string(n_bytes, 'a')}}};
  };
  const TextService plain(engine_, counting_,
                          {"tales", {}, ChatTemplates("{{ messages[0].content }}")});
  EXPECT_EQ(plain.Tokenize({.input = chat(kMaxTokenizeBytes + 1)}).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(counting_.n_bytes(), 0u);
}

TEST_F(TokenizeTest, AnswersAreBounded) {
  EXPECT_EQ(Tokenize(std::string(kMaxTokenizeBytes, 'a')).status().code(), kExhausted)
      << "an id a byte";
  EXPECT_EQ(counted_.Tokenize({.input = Words(1000)}).status().code(), kExhausted);
  EXPECT_EQ(counted_.Detokenize({.tokens = TokenList(33, 7)}).status().code(), kExhausted);
  EXPECT_EQ(counted_.Detokenize({.tokens = TokenList(32, 7)})->size(), kMaxTextAnswerBytes);
  EXPECT_EQ(
      service_.Detokenize({.tokens = TokenList(size_t{kMaxDetokenizeIds} + 1, 7)}).status().code(),
      kInvalid);
}

TEST_F(TokenizeTest, CountsInTheTenantsLimits) {
  const Tenant tenant = {.name = "ours", .max_live_requests = 1, .tokens_per_minute = 5};
  GenerationRequest running;
  running.input = TokenList{5};
  running.tenant = tenant;
  auto heard = std::make_shared<Heard>();
  const auto id = service_.Generate(running, std::make_unique<RecordingListener>(heard));
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(service_.Tokenize({.tenant = tenant}).status().code(), kExhausted);
  EXPECT_EQ(service_.Detokenize({.tenant = tenant}).status().code(), kExhausted);
  engine_.Finish(*id, FinishReason::kLength);
  EXPECT_TRUE(service_.Tokenize({.input = std::string("a"), .tenant = tenant}).ok());
  EXPECT_TRUE(service_.Detokenize({.tokens = TokenList(5, 7), .tenant = tenant}).ok());
  EXPECT_EQ(service_.Detokenize({.tokens = {7}, .tenant = tenant}).status().code(), kExhausted);
  EXPECT_EQ(service_.Tokenize({.tenant = tenant}).status().code(), kExhausted);
  EXPECT_TRUE(service_.Tokenize({.tenant = {.name = "others"}}).ok());
}

TEST_F(TokenizeTest, TokensToGenerateFromAreChargedOnce) {
  const Tenant tenant = {.name = "ours", .tokens_per_minute = 5};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(
        service_.Tokenize({.input = Words(20), .is_charged = false, .tenant = tenant}).ok());
  }
  EXPECT_TRUE(service_.Tokenize({.input = Words(20), .tenant = tenant}).ok());
  EXPECT_EQ(
      service_.Tokenize({.input = Words(1), .is_charged = false, .tenant = tenant}).status().code(),
      kExhausted);
}

TEST_F(TokenizeTest, EndsWhenNobodyWaits) {
  EXPECT_EQ(service_.Tokenize({.deadline = absl::InfinitePast()}).status().code(), kDeadline);
  EXPECT_EQ(service_.Detokenize({.deadline = absl::InfinitePast()}).status().code(), kDeadline);
  // In the midst of a text too.
  int n_asked = 0;
  const auto cancelled = [&n_asked] { return ++n_asked == 3; };
  EXPECT_EQ(service_.Tokenize({.input = Words(500'000), .is_cancelled = cancelled}).status().code(),
            kCancelled);
  EXPECT_EQ(n_asked, 3);
  GenerationRequest request;
  request.input = std::string("Once");
  request.is_cancelled = [] { return true; };
  auto heard = std::make_shared<Heard>();
  EXPECT_EQ(service_.Generate(request, std::make_unique<RecordingListener>(heard)).status().code(),
            kCancelled);
  EXPECT_EQ(service_
                .Score({.context = std::string("a"),
                        .continuations = {std::string("b")},
                        .is_cancelled = [] { return true; }},
                       nullptr)
                .status()
                .code(),
            kCancelled);
}

TEST_F(TokenizeTest, EndsWhenTheServerStops) {
  service_.StopTokenizing();
  EXPECT_EQ(Tokenize("a").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(TokenizeTest, PromptsThatCannotFitAreRefusedUnread) {
  const size_t most = 2048 * TestTokenizer().max_bytes_per_id().value();
  GenerationRequest request;
  request.input = std::string(most + 1, 'a');
  auto heard = std::make_shared<Heard>();
  const absl::Status status =
      counted_.Generate(request, std::make_unique<RecordingListener>(heard)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("text: "));
  const ScoreRequest score = {.context = std::string(most, 'a'),
                              .continuations = {std::string("b")}};
  EXPECT_EQ(counting_.n_bytes(), 0u);
  EXPECT_EQ(counted_.Score(score, nullptr).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(TokenizeTest, ScoreTokenizesAContextOnce) {
  const std::string context = Words(3000);
  ScoreRequest request = {.context = context};
  for (const char* text : {"e there was", " wolf", ",", "\n\n7", "é", "upon"}) {
    request.continuations.emplace_back(std::string(text));
  }
  const auto ids = counted_.Score(request, [](const auto&) {});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_LT(counting_.n_bytes(), 15000u) << "seven times 3,000 and more if all is read each time";
  for (size_t i = 0; i < ids->size(); ++i) {
    const std::string joined = context + std::get<std::string>(request.continuations[i]);
    EXPECT_EQ(engine_.request((*ids)[i]).prompt,
              *TestTokenizer().Encode(joined, {.add_eos = false}));
  }
}

TEST_F(TokenizeTest, ScoreReadsAContextWithoutSpacesWhole) {
  std::string context;
  while (context.size() < 2500) context += "there";
  const ScoreRequest request = {.context = context,
                                .continuations = {std::string("b"), std::string("fore")}};
  const auto ids = service_.Score(request, [](const auto&) {});
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(engine_.request((*ids)[1]).prompt,
            *TestTokenizer().Encode(context + "fore", {.add_eos = false}));
}

}  // namespace
}  // namespace lowkey

#include "server/text/structured_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "server/grammar/automaton/budget.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using Kind = ResponseFormat::Kind;

class StructuredOutputTest : public testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const TokenConstraintFactory>> Compile(
      const ResponseFormat& format, const std::string& tenant = "") {
    return output_.Compile(format, tenant, interrupt_);
  }
  std::string Refusal(const ResponseFormat& format) {
    const auto compiled = Compile(format);
    EXPECT_EQ(compiled.status().code(), absl::StatusCode::kInvalidArgument) << compiled.status();
    return std::string(compiled.status().message());
  }

  // Whether the bytes of `text` are let through, and then the end.
  static bool Accepts(const TokenConstraintFactory& factory, const std::string& text) {
    const std::unique_ptr<TokenConstraint> constraint = factory.Begin();
    for (int32_t token : BytePieces(text)) {
      if (!constraint->Advance(token).ok()) return false;
    }
    return constraint->Advance(TestTokenizer().eos_ids()[0]).ok();
  }

  Interrupt interrupt_{[] { return absl::OkStatus(); }};
  StructuredOutput output_{TestTokenizer(), TestTokenizer().vocab_size(),
                           TestTokenizer().eos_ids()};
};

TEST_F(StructuredOutputTest, CompilesEveryForm) {
  struct Case {
    ResponseFormat format;
    std::string text, other;
  };
  const std::vector<Case> cases = {{{Kind::kJsonObject}, "{\"a\": 1}", "[1]"},
                                   {{Kind::kJsonSchema, "{\"type\":\"null\"}"}, "null", "1"},
                                   {{Kind::kRegex, "a+"}, "aa", "b"},
                                   {{Kind::kChoice, "", {"yes", "no"}}, "no", "maybe"},
                                   {{Kind::kGrammar, "root ::= \"x\" [0-9]"}, "x1", "x"}};
  for (const Case& c : cases) {
    const auto factory = Compile(c.format);
    ASSERT_TRUE(factory.ok()) << factory.status();
    EXPECT_EQ((*factory)->vocab_size(), TestTokenizer().vocab_size());
    EXPECT_TRUE(Accepts(**factory, c.text)) << c.text;
    EXPECT_FALSE(Accepts(**factory, c.other)) << c.other;
  }
}

TEST_F(StructuredOutputTest, ErrorsNameTheFieldTheFormAndTheFault) {
  EXPECT_THAT(Refusal({Kind::kJsonSchema, "{\"not\":{}}"}),
              HasSubstr("response_format: json_schema: #/not: this keyword is not supported"));
  EXPECT_THAT(Refusal({Kind::kRegex, "("}), HasSubstr("response_format: regex: byte 1"));
  EXPECT_THAT(Refusal({Kind::kGrammar, "x"}), HasSubstr("response_format: grammar: byte 1"));
  EXPECT_THAT(Refusal({Kind::kChoice}), HasSubstr("response_format: choice: no text"));
  EXPECT_THAT(Refusal({Kind::kChoice, "", {"a", ""}}), HasSubstr("choice[1]: empty"));
  EXPECT_THAT(Refusal({Kind::kChoice, "", {"\xFF"}}), HasSubstr("choice[0]: byte 0: not UTF-8"));
  const std::string large(grammar::kMaxGrammarBytes + 1, 'a');
  EXPECT_THAT(Refusal({Kind::kRegex, large}), HasSubstr("regex: 65537 bytes, expected at most"));
  EXPECT_THAT(Refusal({Kind::kChoice, "", {large}}), HasSubstr("choice: 65538 bytes"));
}

TEST_F(StructuredOutputTest, EqualFormatsOfATenantAreCompiledOnce) {
  const ResponseFormat format{Kind::kRegex, "[a-z]{1,20}"};
  const auto first = *Compile(format, "ann");
  EXPECT_EQ(*Compile(format, "ann"), first);
  EXPECT_NE(*Compile(format, "bob"), first);
  EXPECT_NE(*Compile({Kind::kGrammar, "root ::= \"a\""}, "ann"), first);
  EXPECT_NE(*Compile({Kind::kChoice, "", {"ab", "c"}}), *Compile({Kind::kChoice, "", {"a", "bc"}}));
}

TEST_F(StructuredOutputTest, TheCacheIsBounded) {
  constexpr int64_t kMaxBytes = 128 << 10;
  StructuredOutput output(TestTokenizer(), TestTokenizer().vocab_size(), TestTokenizer().eos_ids(),
                          kMaxBytes);
  const auto compile = [&](int i) {
    std::string text;
    for (int j = 0; j < 100; ++j) text += "x" + std::to_string(j) + "[a-z]{3}|";
    return *output.Compile({Kind::kRegex, text + std::to_string(i)}, "", interrupt_);
  };
  const auto first = compile(0), second = compile(1);
  int64_t most_bytes = 0;
  for (int i = 2; i < 40; ++i) {
    compile(i);
    EXPECT_EQ(compile(0), first);  // it was used meanwhile, and so it stays
    most_bytes = std::max(most_bytes, output.cached_bytes());
  }
  EXPECT_GT(most_bytes, kMaxBytes / 2);
  EXPECT_LE(most_bytes, kMaxBytes);
  EXPECT_NE(compile(1), second);
}

TEST_F(StructuredOutputTest, AnInterruptEndsTheWork) {
  Interrupt interrupt([] { return absl::CancelledError("gone"); });
  EXPECT_EQ(output_.Compile({Kind::kJsonObject}, "", interrupt).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_F(StructuredOutputTest, AModelWithoutEndTokensIsRefused) {
  StructuredOutput output(TestTokenizer(), TestTokenizer().vocab_size(), {});
  EXPECT_EQ(output.Compile({Kind::kJsonObject}, "", interrupt_).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(StructuredOutputTest, ThreadsCompileTogether) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      Interrupt interrupt([] { return absl::OkStatus(); });
      for (int i = 0; i < 20; ++i) {
        const ResponseFormat format{Kind::kRegex, "a{" + std::to_string(i % 5) + "}"};
        ASSERT_TRUE(output_.Compile(format, "", interrupt).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lowkey

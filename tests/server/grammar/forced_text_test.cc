// Forced text, as the demo model's tokenizer spells it.
#include "server/grammar/forced_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/model_files/load_tokenizer.h"
#include "tests/server/grammar/testing.h"
#include "tests/server/testing.h"
#include "tokenizer/utf8.h"

namespace lowkey::grammar {
namespace {

using ::testing::IsEmpty;

std::shared_ptr<const Vocabulary> DemoVocabulary() {
  static const auto vocabulary = std::make_shared<const Vocabulary>(
      TestTokenizer(), TestTokenizer().vocab_size(), TestTokenizer().eos_ids());
  return vocabulary;
}

GrammarConstraint Demo(std::shared_ptr<const Grammar> grammar) {
  return GrammarConstraint(
      {std::move(grammar), DemoVocabulary(), std::make_shared<MaskCache>(), &TestTokenizer()});
}

std::string TextOf(const std::vector<int32_t>& tokens) {
  std::string text;
  for (const int32_t token : tokens) text.append(DemoVocabulary()->text(token));
  return text;
}

std::vector<int32_t> Spell(std::string_view before, std::string_view forced, size_t most = 100) {
  return SpellForced(TestTokenizer(), *DemoVocabulary(), before, forced, most);
}

// Writes the bytes' own tokens.
void Write(GrammarConstraint& constraint, const std::string& text) {
  for (const int32_t token : BytePieces(text)) {
    ASSERT_TRUE(constraint.Advance(token).ok()) << text;
  }
}

TEST(SpellForcedTest, SpellsAsTheTokenizerSpellsTheWholeText) {
  const std::string text = "Once upon a time there was a little girl named \xE2\x82\xAC Lily";
  const auto whole = TestTokenizer().Encode(text, {.add_bos = false, .add_eos = false});
  ASSERT_TRUE(whole.ok());
  std::string before;
  for (size_t i = 1; i < whole->size(); ++i) {
    before = TextOf({whole->begin(), whole->begin() + static_cast<int64_t>(i)});
    const std::string forced = TextOf({whole->begin() + static_cast<int64_t>(i), whole->end()});
    // Whole characters only: bytes of a character have tokens of their own.
    if (FindInvalidUtf8(forced).has_value()) continue;
    EXPECT_THAT(Spell(before, forced), testing::ElementsAreArray(whole->begin() + i, whole->end()))
        << before;
  }
}

TEST(SpellForcedTest, TokensJoinToTheForcedTextWhereverItBegins) {
  const std::string text =
      "{\"first name\": \"Ann\", \"age\": 34, \"\xC3\xA4\": [\xF0\x9F\x98\x80]}";
  for (size_t begin = 0; begin <= text.size(); ++begin) {
    for (size_t n = 0; n + begin <= text.size(); ++n) {
      const std::string forced = text.substr(begin, n);
      const std::string spelled = TextOf(Spell(text.substr(0, begin), forced));
      EXPECT_EQ(forced.substr(0, spelled.size()), spelled);
      if (!FindInvalidUtf8(forced).has_value()) {
        EXPECT_EQ(spelled, forced);
      } else {
        EXPECT_LE(forced.size() - spelled.size(), 3u) << "more than a character cut off";
      }
    }
  }
}

TEST(SpellForcedTest, GivesNoMoreThanIsAskedFor) {
  EXPECT_EQ(Spell("a", " little girl named Lily", 3).size(), 3u);
  EXPECT_THAT(Spell("a", " little girl", 0), IsEmpty());
  EXPECT_THAT(Spell("a", ""), IsEmpty());
  EXPECT_THAT(Spell("a", "\xFF\xFE"), IsEmpty()) << "no text";
}

TEST(SpellForcedTest, TokensPastTheModelsVocabularyEndTheSpelling) {
  const std::vector<int32_t> tokens = Spell("a", " little girl");
  ASSERT_FALSE(tokens.empty());
  std::vector<std::string> texts(static_cast<size_t>(tokens[0]));
  texts[0] = "x";
  EXPECT_THAT(SpellForced(TestTokenizer(), Vocabulary(texts, {}), "a", " little girl", 9),
              IsEmpty());
}

TEST(GuessSpaceTest, GuessesWhatCameBeforeAndElseTheUsual) {
  EXPECT_EQ(GuessSpace("", '"'), "");
  EXPECT_EQ(GuessSpace("{", '"'), std::nullopt);
  EXPECT_EQ(GuessSpace("{\"a\": [{\n\"b\": {", '"'), "\n");
  EXPECT_EQ(GuessSpace("{\"a\"", ':'), "");
  EXPECT_EQ(GuessSpace("{\"a\":", '"'), " ");
  EXPECT_EQ(GuessSpace("{\"a\":\"b\",", '"'), " ");
  EXPECT_EQ(GuessSpace("{\"a\":\"b\",\"c\":", '"'), "");
  EXPECT_EQ(GuessSpace("{\n  \"a\": 1,\n  \"b\": 2,", '"'), "\n  ");
  EXPECT_EQ(GuessSpace("[1,\t2,", '2'), "\t");
}

TEST(ForcedTokensTest, SpellTheOnlyTextThereIs) {
  GrammarConstraint constraint = Demo(Regex("Once upon a time, (Ann|Bob)"));
  EXPECT_EQ(TextOf(constraint.ForcedTokens(64)), "Once upon a time, ");
  EXPECT_EQ(constraint.ForcedTokens(2).size(), 2u);
  EXPECT_THAT(constraint.ForcedTokens(0), IsEmpty());
  EXPECT_THAT(constraint.ForcedTokens(-1), IsEmpty());
  Write(constraint, "Once up");
  EXPECT_EQ(TextOf(constraint.ForcedTokens(64)), "on a time, ");
  Write(constraint, "on a time, ");
  EXPECT_THAT(constraint.ForcedTokens(64), IsEmpty());
  Write(constraint, "A");
  EXPECT_EQ(TextOf(constraint.ForcedTokens(64)), "nn");
  Write(constraint, "nn");
  EXPECT_THAT(constraint.ForcedTokens(64), IsEmpty());
  ASSERT_TRUE(constraint.Advance(TestTokenizer().eos_ids()[0]).ok());
  EXPECT_THAT(constraint.ForcedTokens(64), IsEmpty());
}

TEST(ForcedTokensTest, AskingChangesNothing) {
  GrammarConstraint constraint = Demo(Regex("Once upon a time, (Ann|Bob)"));
  GrammarConstraint other = Demo(Regex("Once upon a time, (Ann|Bob)"));
  for (const int32_t token : BytePieces("Once upon a time, Bob")) {
    (void)constraint.ForcedTokens(10);
    ASSERT_EQ(*constraint.Mask(), *other.Mask());
    ASSERT_TRUE(constraint.Advance(token).ok() && other.Advance(token).ok());
  }
}

TEST(ForcedTokensTest, GoOnPastWhiteSpaceAsTheTextHadIt) {
  const auto schema = Schema(R"({"type":"object","properties":{"name":{"type":"string"},
      "city":{"type":"string"}, "age":{"type":"integer"}},
      "required":["name","city","age"],"additionalProperties":false})");
  GrammarConstraint constraint = Demo(schema);
  Write(constraint, "{");
  EXPECT_THAT(constraint.ForcedTokens(64), IsEmpty());
  Write(constraint, "\"");
  EXPECT_EQ(TextOf(constraint.ForcedTokens(64)), "name\": \"");
  Write(constraint, "name\": \"Ann\"");
  EXPECT_EQ(TextOf(constraint.ForcedTokens(64)), ", \"city\": \"");
  const auto copy = constraint.Copy();
  EXPECT_EQ(TextOf(copy->ForcedTokens(64)), ", \"city\": \"");
  GrammarConstraint pretty = Demo(schema);
  Write(pretty, "{\n \"name\":\"Ann\",\n \"city\"");
  EXPECT_EQ(TextOf(pretty.ForcedTokens(64)), ":\"");
  Write(pretty, ":\"Berlin\"");
  EXPECT_EQ(TextOf(pretty.ForcedTokens(64)), ",\n \"age\":");
}

TEST(ForcedTokensTest, ThereAreNoneWithoutATokenizer) {
  GrammarConstraint constraint = ConstraintOf(Regex("abc"), DemoVocabulary());
  EXPECT_EQ(constraint.ForcedBytes(), "abc");
  EXPECT_THAT(constraint.ForcedTokens(8), IsEmpty());
}

// What is forced may always come.
TEST(ForcedTokensTest, MayComeOnRandomWalks) {
  Budget budget;
  std::mt19937 random(5);
  for (const auto& grammar :
       {Must(CompileJsonObject(budget)), Regex("(Once upon a time|On a day)( it (was|is))?"),
        Ebnf("root ::= \"a\" item* \"]\"\nitem ::= \"[ \" word \" ]\"\nword ::= \"(\" root \")\" | "
             "[a-z]+")}) {
    for (int walk = 0; walk < 20; ++walk) {
      GrammarConstraint constraint = Demo(grammar);
      for (int step = 0; step < 30; ++step) {
        const std::unique_ptr<TokenConstraint> ahead = constraint.Copy();
        for (const int32_t token : constraint.ForcedTokens(16)) {
          ASSERT_TRUE(ahead->Advance(token).ok());
        }
        const auto mask = constraint.Mask();
        ASSERT_TRUE(mask.ok());
        int32_t token = 0;
        do token = static_cast<int32_t>(random() % DemoVocabulary()->vocab_size());
        while (!IsIn(*mask, token));
        ASSERT_TRUE(constraint.Advance(token).ok());
        if (DemoVocabulary()->IsEnd(token)) break;
      }
    }
  }
}

TEST(LongestBeginningTest, FindsTheLongestTokenThatATextBeginsWith) {
  const Vocabulary vocabulary(std::vector<std::string>{"a", "ab", "abcd", "b", "a", "<end>"}, {5});
  EXPECT_EQ(vocabulary.LongestBeginning("abcx"), 1);
  EXPECT_EQ(vocabulary.LongestBeginning("abcd"), 2);
  EXPECT_EQ(vocabulary.LongestBeginning("ax"), 0);
  EXPECT_EQ(vocabulary.LongestBeginning("c"), std::nullopt);
  EXPECT_EQ(vocabulary.LongestBeginning(""), std::nullopt);
}

}  // namespace
}  // namespace lowkey::grammar

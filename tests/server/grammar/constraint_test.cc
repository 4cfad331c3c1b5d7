#include "server/grammar/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "server/model_files/load_tokenizer.h"
#include "tests/server/grammar/testing.h"
#include "tests/server/testing.h"

namespace lowkey::grammar {
namespace {

// A vocabulary whose tokens cross every border of JSON.
std::shared_ptr<const Vocabulary> MixedVocabulary() {
  std::vector<std::string> texts;
  for (int i = 0; i < 256; ++i) texts.push_back(std::string(1, static_cast<char>(i)));
  for (const char* text :
       {"\":",   "\",", "\"}",    "{\"",    "\",\"", "\": \"", "}}",   "]}",    "null",
        "true,", "fal", "se",     "12",     "345",   "1,",     ", ",   "\n  ",  "\xE2\x82",
        "\xACx", "abc", "abcdef", "name",   "a\"",   "[[",     "[{\"", "\\u00", "e9",
        "-1",    "0.",  "e+",     "      ", "<end>", "",       "name"}) {
    texts.push_back(text);
  }
  return std::make_shared<const Vocabulary>(texts, std::vector<int32_t>{256 + 31});
}

std::vector<std::shared_ptr<const Grammar>> SomeGrammars() {
  Budget budget;
  return {
      Must(CompileJsonObject(budget)),
      Schema(R"({"type":"object","properties":{"name":{"type":"string","minLength":2,"maxLength":9},
                 "tags":{"type":"array","items":{"enum":["abc","abcdef"]},
                         "minItems":1,"maxItems":3},
                 "n":{"type":"integer","minimum":-1,"maximum":345}},"required":["name"]})"),
      Schema(R"({"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"}}},"$ref":"#/$defs/t"})"),
      Schema(R"({"anyOf":[{"type":"object","properties":{"a":{"type":"string"}}},
                          {"type":"array","items":{"type":"number"}},{"type":"string"}]})"),
      Regex("(abc|name)*[0-9]{2,4}\xE2\x82\xAC?"),
      Ebnf("root ::= \"a\" item* \"]\"\nitem ::= \"[\" word \"]\" | word\nword ::= [a-z]+ | "
           "\"(\" root \")\"")};
}

TEST(ConstraintTest, MasksAreExactlyTheTokensThatMayComeOnRandomWalks) {
  const auto vocabulary = MixedVocabulary();
  std::mt19937 random(7);
  for (const auto& grammar : SomeGrammars()) {
    ASSERT_NE(grammar, nullptr);
    const ConstraintParts parts{grammar, vocabulary, std::make_shared<MaskCache>()};
    for (int walk = 0; walk < 8; ++walk) {
      GrammarConstraint constraint(parts);
      for (int step = 0; step < 40; ++step) {
        const auto mask = constraint.Mask();
        ASSERT_TRUE(mask.ok()) << mask.status();
        std::vector<int32_t> allowed;
        for (int32_t t = 0; t < vocabulary->vocab_size(); ++t) {
          const bool may_come = constraint.Copy()->Advance(t).ok();
          ASSERT_EQ(IsIn(*mask, t), may_come) << t << " " << vocabulary->text(t);
          if (may_come) allowed.push_back(t);
        }
        const int32_t token = allowed[random() % allowed.size()];
        ASSERT_TRUE(constraint.Advance(token).ok());
        if (vocabulary->IsEnd(token)) break;
      }
    }
  }
}

TEST(ConstraintTest, MasksDependOnTheTokensAloneNotOnTheCache) {
  const auto vocabulary = MixedVocabulary();
  for (const auto& grammar : SomeGrammars()) {
    const ConstraintParts warm{grammar, vocabulary, std::make_shared<MaskCache>()};
    const ConstraintParts tiny{grammar, vocabulary, std::make_shared<MaskCache>(1)};
    std::mt19937 random(3);
    for (int walk = 0; walk < 5; ++walk) {
      GrammarConstraint a(warm), b(tiny);
      for (int step = 0; step < 40; ++step) {
        const auto mask_a = a.Mask(), mask_b = b.Mask();
        ASSERT_TRUE(mask_a.ok() && mask_b.ok());
        ASSERT_EQ(*mask_a, *mask_b);
        int32_t token = 0;
        do token = static_cast<int32_t>(random() % vocabulary->vocab_size());
        while (!IsIn(*mask_a, token));
        ASSERT_TRUE(a.Advance(token).ok() && b.Advance(token).ok());
        if (vocabulary->IsEnd(token)) break;
      }
    }
  }
}

TEST(ConstraintTest, AMaskThatIsPreparedInPartsIsTheSame) {
  const auto vocabulary = MixedVocabulary();
  for (const auto& grammar : SomeGrammars()) {
    const ConstraintParts once{grammar, vocabulary, std::make_shared<MaskCache>()};
    const ConstraintParts tiny{grammar, vocabulary, std::make_shared<MaskCache>(1)};
    std::mt19937 random(5);
    for (int walk = 0; walk < 5; ++walk) {
      GrammarConstraint a(once), b(tiny);
      for (int step = 0; step < 40; ++step) {
        const auto mask_a = a.Mask();
        int n_calls = 0;
        EXPECT_FALSE(b.Prepare(0).is_ready);
        while (!b.Prepare(1).is_ready) ASSERT_LT(++n_calls, 10'000);
        EXPECT_EQ(b.Prepare(1).n_work, 0);
        EXPECT_TRUE(b.Copy()->Prepare(0).is_ready);
        const auto mask_b = b.Mask();
        ASSERT_TRUE(mask_a.ok() && mask_b.ok());
        ASSERT_EQ(*mask_a, *mask_b);
        ASSERT_EQ(*b.Copy()->Mask(), *mask_b);
        int32_t token = 0;
        do token = static_cast<int32_t>(random() % vocabulary->vocab_size());
        while (!IsIn(*mask_a, token));
        ASSERT_TRUE(a.Advance(token).ok() && b.Advance(token).ok());
        if (vocabulary->IsEnd(token)) break;
      }
    }
  }
}

// The tokens that end the word and go on in the list are found once, and not for every letter.
TEST(ConstraintTest, TokensThatLeadIntoTheSameFramesBelowAreFoundOnce) {
  std::vector<std::string> texts;
  for (int i = 0; i < 256; ++i) texts.push_back(std::string(1, static_cast<char>(i)));
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) texts.push_back(std::string("\",\"") + a + b);
  }
  texts.push_back("<end>");
  const auto vocabulary = std::make_shared<const Vocabulary>(
      texts, std::vector<int32_t>{static_cast<int32_t>(texts.size()) - 1});
  const auto grammar =
      Ebnf("root ::= \"[\" word (\",\" word)* \"]\"\nword ::= \"\\\"\" [a-z]+ \"\\\"\"");
  ASSERT_NE(grammar, nullptr);
  const auto cache = std::make_shared<MaskCache>();
  GrammarConstraint constraint({grammar, vocabulary, cache});
  for (const char c : {'[', '"', 'a'}) ASSERT_TRUE(constraint.Advance(c).ok());
  constexpr int64_t kAll = int64_t{1} << 40;
  EXPECT_GT(constraint.Prepare(kAll).n_work, 26);
  for (const char c : {'b', 'c'}) {
    ASSERT_TRUE(constraint.Advance(c).ok());
    EXPECT_LT(constraint.Prepare(kAll).n_work, 10);
    EXPECT_TRUE(IsIn(*constraint.Mask(), 256));  // ","aa
  }
  EXPECT_LE(cache->size_bytes(), MaskCache::kMaxBytes);
}

TEST(ConstraintTest, ACopyGoesItsOwnWay) {
  GrammarConstraint constraint = ConstraintOf(Regex("ab|cd"));
  const std::unique_ptr<TokenConstraint> before = constraint.Copy();
  ASSERT_TRUE(constraint.Advance('a').ok());
  EXPECT_FALSE(constraint.Advance('d').ok());
  EXPECT_TRUE(constraint.Advance('b').ok());
  EXPECT_TRUE(before->Advance('c').ok());
  EXPECT_TRUE(before->Advance('d').ok());
}

TEST(ConstraintTest, ARefusedTokenChangesNothing) {
  GrammarConstraint constraint = ConstraintOf(Regex("ab"));
  for (int32_t token : {-1, 256, 257, 1000, static_cast<int32_t>('b')}) {
    EXPECT_EQ(constraint.Advance(token).code(), absl::StatusCode::kInvalidArgument) << token;
  }
  EXPECT_TRUE(constraint.Advance('a').ok());
  EXPECT_TRUE(constraint.Advance('b').ok());
  EXPECT_TRUE(constraint.Advance(256).ok());
  EXPECT_EQ(constraint.Mask().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(constraint.Advance(256).ok());
}

TEST(ConstraintTest, AVocabularyThatCannotSpellTheTextIsADeadEnd) {
  const auto vocabulary = std::make_shared<const Vocabulary>(
      std::vector<std::string>{"a", "b", "<end>"}, std::vector<int32_t>{2});
  GrammarConstraint constraint = ConstraintOf(Regex("ac"), vocabulary);
  ASSERT_TRUE(constraint.Advance(0).ok());
  const absl::Status status = constraint.Mask().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("no token of the vocabulary"));
}

// Each of the rules that may end takes a walk of its own over all tokens.
TEST(ConstraintTest, AMaskOfManyOpenRulesIsBounded) {
  std::vector<std::string> texts;
  for (int i = 0; i < 256; ++i) texts.push_back(std::string(1, static_cast<char>(i)));
  for (int i = 0; i < 60'000; ++i) {
    std::string text;
    for (int n = i; text.size() < 8; n /= 24) text += static_cast<char>('b' + n % 24);
    texts.push_back(text);
  }
  texts.push_back("<end>");
  const auto vocabulary =
      std::make_shared<const Vocabulary>(texts, std::vector<int32_t>{256 + 60'000});
  const auto nested = [](int depth) {
    std::string rules = "root ::= r0\n";
    for (int i = 0; i < depth; ++i) {
      rules += absl::StrCat("r", i, " ::= r", i + 1, " y", i, "?\ny", i, " ::= [a-y]+\n");
    }
    return Ebnf(rules + absl::StrCat("r", depth, " ::= \"z\""));
  };
  for (const int depth : {1, 60}) {
    const auto grammar = nested(depth);
    ASSERT_NE(grammar, nullptr);
    const auto cache = std::make_shared<MaskCache>();
    for (int i = 0; i < 2; ++i) {  // the same with kept masks
      GrammarConstraint constraint({grammar, vocabulary, cache});
      ASSERT_TRUE(constraint.Advance('z').ok());
      const absl::Status status = constraint.Mask().status();
      EXPECT_EQ(status.code(),
                depth == 1 ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted)
          << status;
    }
  }
}

TEST(ConstraintTest, ThreadsShareACache) {
  const auto vocabulary = MixedVocabulary();
  const ConstraintParts parts{SomeGrammars()[0], vocabulary, std::make_shared<MaskCache>(2000)};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&parts, &vocabulary, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 20; ++i) {
        GrammarConstraint constraint(parts);
        RandomText(constraint, *vocabulary, random, 30);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MaskCacheTest, DropsWhatWasUsedLongestAgo) {
  MaskCache cache(3000);
  const auto mask = [] {
    auto made = std::make_shared<TopMask>();
    made->bits.resize(100);
    return made;
  };
  for (int32_t state = 0; state < 3; ++state) {
    cache.Keep({.state = state}, mask());
    EXPECT_NE(cache.Find({.state = 0}), nullptr);
  }
  EXPECT_NE(cache.Find({.state = 0}), nullptr);
  EXPECT_EQ(cache.Find({.state = 1}), nullptr);
  EXPECT_LE(cache.size_bytes(), 3000);
}

TEST(MaskCacheTest, FramesBelowAreAPartOfTheKeyAndOfItsSize) {
  MaskCache cache(100'000);
  for (int32_t i = 0; i < 1000; ++i) {
    cache.Keep({.state = 1, .below = Stack(60, {i, 0})}, std::make_shared<TopMask>());
  }
  EXPECT_EQ(cache.Find({.state = 1}), nullptr);
  EXPECT_EQ(cache.Find({.state = 1, .below = Stack(60, {0, 0})}), nullptr);
  EXPECT_NE(cache.Find({.state = 1, .below = Stack(60, {999, 0})}), nullptr);
  int n_kept = 0;
  for (int32_t i = 0; i < 1000; ++i) {
    n_kept += cache.Find({.state = 1, .below = Stack(60, {i, 0})}) != nullptr ? 1 : 0;
  }
  EXPECT_LE(n_kept * 2 * 60 * static_cast<int64_t>(sizeof(Frame)), 100'000);
}

TEST(VocabularyTest, TheDemoTokenizersTokensJoinToTheTextThatItDecodes) {
  const Tokenizer& tokenizer = TestTokenizer();
  const Vocabulary vocabulary(tokenizer, tokenizer.vocab_size() + 5, tokenizer.eos_ids());
  EXPECT_EQ(vocabulary.vocab_size(), tokenizer.vocab_size() + 5);
  // No text has the byte that begins a control piece's spelling.
  EXPECT_EQ(vocabulary.text(*tokenizer.bos_id()), kControlByte + std::string("<s>"));
  EXPECT_TRUE(vocabulary.text(*tokenizer.PieceToId("<0xFF>")).empty());
  EXPECT_TRUE(vocabulary.text(tokenizer.eos_ids()[0]).empty());
  EXPECT_TRUE(vocabulary.text(tokenizer.vocab_size() + 1).empty());
  const std::string text = "Once upon a time {\"a\": [1, 2]} \xE2\x82\xAC \xF0\x9F\x98\x80";
  const auto ids = tokenizer.Encode(text, {.add_bos = false, .add_eos = false});
  ASSERT_TRUE(ids.ok());
  std::string joined;
  for (int32_t id : *ids) joined.append(vocabulary.text(id));
  EXPECT_EQ(joined, *tokenizer.Decode(*ids, {.keep_leading_space = true}));
}

TEST(VocabularyTest, TheTrieHoldsEveryTokenOnce) {
  const auto vocabulary = MixedVocabulary();
  std::multiset<int32_t> seen;
  for (int32_t node = 0; node < vocabulary->n_nodes(); ++node) {
    for (int32_t token : vocabulary->tokens(node)) {
      seen.insert(token);
      EXPECT_EQ(static_cast<int>(vocabulary->text(token).size()), vocabulary->depth(node));
      EXPECT_EQ(static_cast<uint8_t>(vocabulary->text(token).back()), vocabulary->byte(node));
    }
  }
  for (int32_t t = 0; t < vocabulary->vocab_size(); ++t) {
    EXPECT_EQ(seen.count(t), vocabulary->text(t).empty() ? 0u : 1u) << t;
  }
  EXPECT_EQ(vocabulary->tokens_from(0).size(), seen.size());
}

}  // namespace
}  // namespace lowkey::grammar

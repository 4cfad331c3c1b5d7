#ifndef LOWKEY_TESTS_SERVER_GRAMMAR_TESTING_H_
#define LOWKEY_TESTS_SERVER_GRAMMAR_TESTING_H_

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "server/grammar/compile.h"
#include "server/grammar/constraint.h"

namespace lowkey::grammar {

// Every byte is a token, and token 256 ends the text.
inline std::shared_ptr<const Vocabulary> ByteVocabulary() {
  static const auto vocabulary = [] {
    std::vector<std::string> texts;
    for (int i = 0; i < 256; ++i) texts.push_back(std::string(1, static_cast<char>(i)));
    texts.push_back("<end>");
    return std::make_shared<const Vocabulary>(texts, std::vector<int32_t>{256});
  }();
  return vocabulary;
}

inline GrammarConstraint ConstraintOf(std::shared_ptr<const Grammar> grammar,
                                      std::shared_ptr<const Vocabulary> vocabulary = nullptr) {
  if (vocabulary == nullptr) vocabulary = ByteVocabulary();
  return GrammarConstraint(
      {std::move(grammar), std::move(vocabulary), std::make_shared<MaskCache>()});
}

inline bool IsIn(absl::Span<const uint64_t> mask, int32_t token) {
  return (mask[token >> 6] >> (token & 63) & 1) != 0;
}

// Whether the text is one of the grammar. Also checks that masks and Advance agree on every byte.
inline bool Accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarConstraint constraint = ConstraintOf(grammar);
  for (char c : text) {
    const int32_t token = static_cast<uint8_t>(c);
    const auto mask = constraint.Mask();
    if (!mask.ok()) {
      ADD_FAILURE() << mask.status() << " within " << text;
      return false;
    }
    const bool may_come = IsIn(*mask, token);
    EXPECT_EQ(constraint.Advance(token).ok(), may_come) << text;
    if (!may_come) return false;
  }
  const auto mask = constraint.Mask();
  EXPECT_TRUE(mask.ok()) << mask.status() << " after " << text;
  EXPECT_EQ(mask.ok() && IsIn(*mask, 256), constraint.MayEnd());
  return constraint.MayEnd();
}

// Draws tokens that the mask allows until the text ends. Nullopt if it did not within `max_tokens`.
inline std::optional<std::string> RandomText(GrammarConstraint& constraint,
                                             const Vocabulary& vocabulary, std::mt19937& random,
                                             int max_tokens) {
  std::string text;
  for (int i = 0; i < max_tokens; ++i) {
    const auto mask = constraint.Mask();
    if (!mask.ok()) {
      ADD_FAILURE() << mask.status() << " after " << text;
      return std::nullopt;
    }
    std::vector<int32_t> allowed;
    for (int32_t t = 0; t < vocabulary.vocab_size(); ++t) {
      if (IsIn(*mask, t)) allowed.push_back(t);
    }
    int32_t token = allowed[random() % allowed.size()];
    // Texts would rarely end otherwise.
    for (int32_t end : vocabulary.end_tokens()) {
      if (IsIn(*mask, end) && random() % 2 == 0) token = end;
    }
    const absl::Status status = constraint.Advance(token);
    if (!status.ok()) {
      ADD_FAILURE() << status << " after " << text;
      return std::nullopt;
    }
    if (vocabulary.IsEnd(token)) return text;
    text.append(vocabulary.text(token));
  }
  return std::nullopt;
}

inline std::shared_ptr<const Grammar> Must(
    const absl::StatusOr<std::shared_ptr<const Grammar>>& grammar) {
  if (!grammar.ok()) ADD_FAILURE() << grammar.status();
  return grammar.ok() ? *grammar : nullptr;
}

inline std::shared_ptr<const Grammar> Regex(std::string_view text) {
  Budget budget;
  return Must(CompileRegex(text, budget));
}
inline std::shared_ptr<const Grammar> Schema(std::string_view text) {
  Budget budget;
  return Must(CompileJsonSchema(text, budget));
}
inline std::shared_ptr<const Grammar> Ebnf(std::string_view text) {
  Budget budget;
  return Must(CompileEbnf(text, budget));
}

}  // namespace lowkey::grammar

#endif  // LOWKEY_TESTS_SERVER_GRAMMAR_TESTING_H_

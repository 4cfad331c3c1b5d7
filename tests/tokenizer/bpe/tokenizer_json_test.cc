#include "tokenizer/bpe/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/bpe/golden.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

using testing::ElementsAre;
using Json = nlohmann::json;

constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

Json MakeDocument() {
  return Json::parse(R"({
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 2, "ab": 1}, "merges": ["a b"]},
    "added_tokens": [{"id": 3, "content": "<s>", "special": true, "normalized": false,
                      "single_word": false, "lstrip": false, "rstrip": true}],
    "decoder": {"type": "Fuse"},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [3], "tokens": ["<s>"]}}}})");
}

absl::StatusOr<BpeSpec> ParseWith(const char* pointer, Json value) {
  Json document = MakeDocument();
  document[Json::json_pointer(pointer)] = std::move(value);
  return ParseTokenizerJson(document.dump());
}

TEST(ParseTokenizerJsonTest, ReadsModelTokensAndTemplate) {
  const auto spec = ParseTokenizerJson(MakeDocument().dump());
  ASSERT_THAT(spec, IsOk());
  EXPECT_THAT(spec->vocabulary.pieces, ElementsAre("a", "ab", "b"));
  ASSERT_EQ(spec->vocabulary.merges.size(), 1u);
  EXPECT_EQ(spec->vocabulary.merges[0].left + "+" + spec->vocabulary.merges[0].right, "a+b");
  ASSERT_EQ(spec->added_tokens.size(), 1u);
  EXPECT_TRUE(spec->added_tokens[0].is_special && spec->added_tokens[0].takes_right_space);
  EXPECT_FALSE(spec->added_tokens[0].is_normalized || spec->added_tokens[0].takes_left_space);
  EXPECT_EQ(spec->prefix_id, 3);
  EXPECT_EQ(spec->suffix_id, std::nullopt);
}

TEST(ParseTokenizerJsonTest, LeavesGapsBetweenIds) {
  const auto spec = ParseWith("/model/vocab", {{"a", 3}, {"b", 0}});
  EXPECT_THAT(spec->vocabulary.pieces, ElementsAre("b", "", "", "a"));
}

TEST(ParseTokenizerJsonTest, ReadsMergesAsPairsToo) {
  const auto spec = ParseWith("/model/merges", Json::array({Json::array({"a b", " c"})}));
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(spec->vocabulary.merges[0].left, "a b");
  for (const Json& merge :
       {Json("ab"), Json("a b c"), Json::array({"a"}), Json::array({"a", 1}), Json(1)}) {
    EXPECT_THAT(ParseWith("/model/merges/0", merge),
                IsInvalid("tokenizer.json: model.merges[0]: "));
  }
}

TEST(ParseTokenizerJsonTest, ModelOptionsThatMeanNothingMayBeThere) {
  for (const char* const key :
       {"/model/dropout", "/model/unk_token", "/model/end_of_word_suffix"}) {
    EXPECT_THAT(ParseWith(key, nullptr), IsOk());
  }
  EXPECT_THAT(ParseWith("/model/dropout", 0.0), IsOk());
  EXPECT_THAT(ParseWith("/model/continuing_subword_prefix", ""), IsOk());
  Json document = MakeDocument();
  document["model"].erase("type");
  document.erase("added_tokens");
  document.erase("post_processor");
  EXPECT_THAT(ParseTokenizerJson(document.dump()), IsOk());
}

TEST(ParseTokenizerJsonTest, NamesWhatItDoesNotCompute) {
  EXPECT_THAT(
      ParseWith("/model/type", "Unigram"),
      FailsWith(kUnimplemented, "tokenizer.json: model.type: \"Unigram\" is not supported"));
  EXPECT_THAT(ParseWith("/model/dropout", 0.1), FailsWith(kUnimplemented, "model.dropout: 0.1"));
  EXPECT_THAT(ParseWith("/model/continuing_subword_prefix", "##"),
              FailsWith(kUnimplemented, "model.continuing_subword_prefix: \"##\""));
  EXPECT_THAT(ParseWith("/model/end_of_word_suffix", "</w>"), FailsWith(kUnimplemented, "suffix"));
  EXPECT_THAT(ParseWith("/post_processor/type", "RobertaProcessing"),
              FailsWith(kUnimplemented, "post_processor.type: \"RobertaProcessing\""));
  EXPECT_THAT(ParseWith("/post_processor/special_tokens/<s>/ids", {3, 3}),
              FailsWith(kUnimplemented, "special_tokens.<s>.ids: an array of 2"));
  const Json item = MakeDocument()["post_processor"]["single"][0];
  const Json text = MakeDocument()["post_processor"]["single"][1];
  for (const Json& single :
       {Json::array({item, item, text}), Json::array({text, text}), Json::array({item})}) {
    EXPECT_THAT(ParseWith("/post_processor/single", single),
                FailsWith(kUnimplemented, "post_processor.single"));
  }
  EXPECT_EQ(ParseWith("/post_processor/single", {text, item})->suffix_id, 3);
}

TEST(ParseTokenizerJsonTest, NamesWhatIsWrong) {
  EXPECT_THAT(ParseTokenizerJson("{"), IsInvalid("tokenizer.json: not JSON"));
  EXPECT_THAT(ParseTokenizerJson("{}"),
              IsInvalid("tokenizer.json: an object, expected an object with model"));
  EXPECT_THAT(ParseWith("/model/vocab", Json::array()), IsInvalid("model.vocab: an array of 0"));
  EXPECT_THAT(ParseWith("/model/vocab/a", -1),
              IsInvalid("model.vocab[\"a\"]: -1, expected an id from 0 to 1048575"));
  EXPECT_THAT(ParseWith("/model/vocab/a", 1 << 20), IsInvalid("1048576, expected an id"));
  EXPECT_THAT(ParseWith("/model/vocab/a", uint64_t{1} << 63), IsInvalid("expected an id"));
  EXPECT_THAT(ParseWith("/model/vocab/a", 1), IsInvalid("1, expected an id of its own"));
  EXPECT_THAT(ParseWith("/model/vocab/", 7), IsInvalid("expected a piece that is not empty"));
  EXPECT_THAT(ParseWith("/model/merges", "a b"), IsInvalid("model.merges: \"a b\""));
  EXPECT_THAT(ParseWith("/model/fuse_unk", 1), IsInvalid("model.fuse_unk: 1"));
  EXPECT_THAT(ParseWith("/added_tokens/0/id", "x"), IsInvalid("added_tokens[0].id: \"x\""));
  EXPECT_THAT(ParseWith("/added_tokens/0/lstrip", nullptr),
              IsInvalid("added_tokens[0]: an object, expected an object with lstrip"));
  EXPECT_THAT(ParseWith("/post_processor/special_tokens", Json::object()),
              IsInvalid("special_tokens: an object, expected an object with <s>"));
}

// --- Normalizer, pre-tokenizer and decoder.

absl::StatusOr<BpeSpec> ParseStep(const char* part, const char* step) {
  return ParseWith(part, Json::parse(step));
}

TEST(ParseNormalizerTest, ReadsStepsInOrder) {
  const auto spec = ParseStep("/normalizer", R"({"type": "Sequence", "normalizers": [
      {"type": "NFC"}, {"type": "Prepend", "prepend": "x"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "_"},
      {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "a"}]})");
  ASSERT_THAT(spec, IsOk());
  EXPECT_EQ(spec->rewriter.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<UnicodeForm>(spec->rewriter[0]));
  EXPECT_TRUE(std::holds_alternative<Replace>(spec->rewriter[3]));
}

TEST(ParseNormalizerTest, NamesWhatItDoesNotTake) {
  EXPECT_THAT(ParseStep("/normalizer", R"({"type": "Lowercase"})"),
              FailsWith(kUnimplemented, "tokenizer.json: normalizer.type: \"Lowercase\""));
  EXPECT_THAT(ParseStep("/normalizer", R"({"type": "Replace", "pattern": {"Regex": "\\w"}})"),
              FailsWith(kUnimplemented, "normalizer.pattern.Regex: \"\\\\w\" at byte 0"));
  EXPECT_THAT(ParseStep("/normalizer", R"({"type": "Replace", "pattern": {"String": ""}})"),
              IsInvalid("normalizer.pattern.String: empty"));
  Json steps = Json::array();
  for (int i = 0; i < 65; ++i) steps.push_back({{"type", "NFC"}});
  EXPECT_THAT(ParseWith("/normalizer", {{"type", "Sequence"}, {"normalizers", steps}}),
              IsInvalid("normalizer: 65 steps, expected at most 64"));
}

TEST(ParsePreTokenizerTest, ReadsEveryKind) {
  const auto spec = ParseStep("/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "MergedWithNext", "invert": true},
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": true},
      {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]})");
  ASSERT_THAT(spec, IsOk());
  ASSERT_EQ(spec->pre_tokenizer.size(), 1u + 1u + 3u + 3u);
  const Cut& split = std::get<Cut>(spec->pre_tokenizer[0]);
  EXPECT_TRUE(split.inverts && split.behavior == Cut::Behavior::kMergedWithNext);
  EXPECT_TRUE(std::get<PrependOnce>(spec->pre_tokenizer[6]).where ==
              PrependOnce::Where::kTextsBeginning);
}

TEST(ParsePreTokenizerTest, NamesWhatItDoesNotTake) {
  EXPECT_THAT(ParseStep("/pre_tokenizer", R"({"type": "Whitespace"})"),
              FailsWith(kUnimplemented, "pre_tokenizer.type: \"Whitespace\""));
  EXPECT_THAT(ParseStep("/pre_tokenizer",
                        R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "x"})"),
              FailsWith(kUnimplemented, "pre_tokenizer.behavior: \"x\""));
  EXPECT_THAT(ParseStep("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})"),
              IsInvalid("pre_tokenizer.replacement: \"ab\", expected one character"));
  EXPECT_THAT(ParseStep("/pre_tokenizer", R"({"type": "Metaspace", "replacement": "_",
                  "add_prefix_space": false, "prepend_scheme": "first"})"),
              IsInvalid("expected \"never\""));
  EXPECT_THAT(ParseStep("/pre_tokenizer", R"({"type": "ByteLevel"})"),
              IsInvalid("pre_tokenizer: an object, expected an object with add_prefix_space"));
}

TEST(ParseDecoderTest, ReadsEveryKind) {
  using LeadingSpace = DecodeRules::LeadingSpace;
  const auto bytes = ParseStep("/decoder", R"({"type": "ByteLevel"})");
  EXPECT_TRUE(bytes->decoder.unspells);
  const auto metaspace = ParseStep("/decoder", R"({"type": "Metaspace", "replacement": "▁"})");
  EXPECT_EQ(metaspace->decoder.rules.leading_space, LeadingSpace::kAllOfFirstPiece);
  const auto llama = ParseStep("/decoder", R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  ASSERT_THAT(llama, IsOk());
  EXPECT_TRUE(llama->decoder.reads_bytes);
  EXPECT_EQ(llama->decoder.rules.leading_space, LeadingSpace::kOne);
  EXPECT_EQ(llama->decoder.replacements.size(), 1u);
}

TEST(ParseDecoderTest, NamesWhatItDoesNotTake) {
  for (const char* const decoder :
       {R"({"type": "WordPiece"})", R"({"type": "Strip", "content": " ", "start": 1, "stop": 0})",
        R"({"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]})",
        R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})",
        R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 2, "stop": 0}]})",
        R"({"type": "Sequence", "decoders": [{"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 1}]})",
        R"({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""})",
        R"({"type": "Replace", "pattern": {"String": "a"}, "content": "bb"})"}) {
    EXPECT_THAT(ParseStep("/decoder", decoder), FailsWith(kUnimplemented, "is not supported"))
        << decoder;
  }
  EXPECT_THAT(ParseWith("/decoder", nullptr), FailsWith(kUnimplemented, "decoder: missing"));
}

}  // namespace
}  // namespace lowkey

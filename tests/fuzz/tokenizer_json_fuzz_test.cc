// The fuzz target over mutations of good files, always the same ones.

#include <gtest/gtest.h>

#include <random>

#include "tests/tokenizer/bpe/golden.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lowkey {
namespace {

using Json = nlohmann::json;
using Random = std::mt19937;

void RunTarget(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

// Every kind of step that is read.
Json SeedDocument() {
  return Json::parse(R"({
    "added_tokens": [
      {"id": 0, "content": "<s>", "special": true, "normalized": false, "single_word": false,
       "lstrip": false, "rstrip": true},
      {"id": 9, "content": "the", "special": false, "normalized": true, "single_word": true,
       "lstrip": true, "rstrip": false}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Replace", "pattern": {"Regex": "a{2,}"}, "content": "a"},
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}, {"type": "NFKC"}]},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(?i:'s)|[^\\s\\p{L}]?\\p{L}+|\\p{N}{1,3}"},
       "behavior": "Isolated", "invert": false},
      {"type": "Digits", "individual_digits": false},
      {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true}]},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<s>": {"ids": [0]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<u>", "fuse_unk": true, "byte_fallback": true,
      "ignore_merges": false,
      "vocab": {"<s>": 0, "<u>": 1, "<0xC3>": 2, "<0xA9>": 3, "▁": 4, "t": 5, "h": 6, "th": 7,
                "▁th": 8, "a": 10, "aa": 11, "<0x00>": 12},
      "merges": ["t h", ["▁", "th"], "a a"]}})");
}

void CollectNodes(Json& node, std::vector<Json*>& nodes) {
  nodes.push_back(&node);
  if (!node.is_structured()) return;
  for (Json& item : node) CollectNodes(item, nodes);
}

// Replaces a value by another one of the document, or by one that is rarely right.
void EditDocument(Json& document, Random& random) {
  static const std::vector<Json> kValues = {nullptr,
                                            true,
                                            false,
                                            0,
                                            1,
                                            -1,
                                            2,
                                            1 << 20,
                                            1e30,
                                            "",
                                            "a",
                                            " ",
                                            "▁",
                                            "[a",
                                            "(a+)+b",
                                            "a*",
                                            "\\w",
                                            ".",
                                            "NFC",
                                            "ByteLevel",
                                            "Metaspace",
                                            "Removed",
                                            "MergedWithNext",
                                            "MergedWithPrevious",
                                            "Contiguous",
                                            "never",
                                            "always",
                                            Json::array(),
                                            Json::object(),
                                            std::string(600, 'a'),
                                            {{"type", "ByteLevel"}, {"add_prefix_space", true}},
                                            {{"String", "a"}},
                                            {{"Regex", "\\s+|\\S"}}};
  std::vector<Json*> nodes;
  CollectNodes(document, nodes);
  Json& target = *nodes[random() % nodes.size()];
  const Json copy = *nodes[random() % nodes.size()];
  if (target.is_structured() && !target.empty() && random() % 3 == 0) {
    target.erase(target.begin());
  } else {
    target = random() % 3 == 0 ? copy : kValues[random() % kValues.size()];
  }
}

TEST(TokenizerJsonFuzzTest, AcceptsItsSeeds) {
  EXPECT_TRUE(MakeFromJson(SeedDocument().dump()).ok());
  RunTarget(SeedDocument().dump());
  for (const char* const name : {"gpt2.json", "qwen2.json", "llama2.json"}) {
    RunTarget(ReadBpeTestData(name));
  }
}

TEST(TokenizerJsonFuzzTest, SurvivesEditedValues) {
  Random random(1);
  int n_accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    Json document = SeedDocument();
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) EditDocument(document, random);
    const std::string text = document.dump();
    n_accepted += MakeFromJson(text).ok();
    RunTarget(text);
  }
  // Otherwise the encoder would hardly be tried.
  EXPECT_GT(n_accepted, 100);
}

TEST(TokenizerJsonFuzzTest, SurvivesTruncationAndFlippedBits) {
  const std::string seed = SeedDocument().dump();
  for (size_t n = 0; n < seed.size(); n += 7) RunTarget(seed.substr(0, n));
  Random random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      const size_t at = random() % text.size();
      text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
    }
    RunTarget(text);
  }
}

// Regular expressions made of pieces of regular expressions.
TEST(TokenizerJsonFuzzTest, SurvivesArbitraryPatterns) {
  static const std::vector<std::string> kParts = {
      "a",   "(", ")", "(?:", "(?i:", "(?=", "(?!",  "(?<=",  "[",       "]",      "[^",
      "-",   "|", "*", "+",   "?",    "{2}", "{1,}", "{0,3}", "\\s",     "\\S",    "\\p{L}",
      "\\d", ".", "^", "$",   "é",    " ",   "\\r",  "\\",    "\\x{e9}", "{1,9}?", "++"};
  Random random(3);
  int n_accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string regex;
    for (int n = 1 + static_cast<int>(random() % 12); n > 0; --n) {
      regex += kParts[random() % kParts.size()];
    }
    Json document = SeedDocument();
    document["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", regex}};
    const std::string text = document.dump();
    if (!MakeFromJson(text).ok()) continue;
    ++n_accepted;
    RunTarget(text);
  }
  EXPECT_GT(n_accepted, 80);
}

}  // namespace
}  // namespace lowkey

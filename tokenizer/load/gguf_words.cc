#include "tokenizer/load/gguf_words.h"

#include "tokenizer/bpe/pre_tokenizer.h"

namespace lowkey {
namespace {

// The published patterns of the models that the names stand for.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";

struct Entry {
  std::vector<std::string_view> names;
  GgufWords words;
};

const std::vector<Entry>& Entries() {
  static const auto* const entries = new std::vector<Entry>{
      {{"default"}, {{R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Regex, R"(\p{N}+)", "[0-9][0-9][0-9]"}}},
      {{"gpt-2", "phi-2", "olmo", "mpt", "jina-es", "jina-de"}, {{kGpt2Regex}}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3"}, {{kLlama3}, true, true}},
      {{"qwen2", "stablelm2", "deepseek-r1-qwen"}, {{kQwen2}}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"},
       {{kDigit, kGpt2Regex}}},
      {{"gpt-4o"}, {{kGpt4o}}},
      {{"tekken"}, {{kTekken}, true, true}},
  };
  return *entries;
}

}  // namespace

std::optional<GgufWords> FindGgufWords(std::string_view pre) {
  for (const Entry& entry : Entries()) {
    for (const std::string_view name : entry.names) {
      if (name == pre) return entry.words;
    }
  }
  return std::nullopt;
}

}  // namespace lowkey

#ifndef LOWKEY_TESTS_TOKENIZER_BPE_GOLDEN_H_
#define LOWKEY_TESTS_TOKENIZER_BPE_GOLDEN_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/files.h"
#include "tests/testing/source_path.h"
#include "tokenizer/bpe/bpe_tokenizer.h"
#include "tokenizer/bpe/tokenizer_json.h"

namespace lowkey {

// A file beside the tests: tests/tokenizer/bpe/data/NAME.
inline std::string ReadBpeTestData(const std::string& name) {
  auto text =
      ReadWholeFile(SourcePath("tests/tokenizer/bpe/data/").append(name), kMaxTokenizerJsonBytes);
  return text.ok() ? *std::move(text) : std::string(text.status().message());
}

inline absl::StatusOr<std::unique_ptr<Tokenizer>> MakeFromJson(std::string_view text,
                                                               TokenizerSettings settings = {}) {
  absl::StatusOr<BpeSpec> spec = ParseTokenizerJson(text);
  if (!spec.ok()) return spec.status();
  return BpeTokenizer::Create(*std::move(spec), std::move(settings));
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TOKENIZER_BPE_GOLDEN_H_

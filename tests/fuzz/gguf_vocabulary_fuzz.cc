// One input is one vocabulary as a GGUF file may hold it, a line for each value: its first letter
// says which. Whatever is accepted must encode and decode anything.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "tests/fuzz/tokenizer_checks.h"
#include "tokenizer/load/gguf_vocabulary.h"

namespace lowkey {
namespace {

// Any number that can be read, so that ids outside the vocabulary come up too.
int32_t Number(const std::string& text) {
  int32_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

void ReadLine(const std::string& line, GgufVocabulary& vocabulary) {
  if (line.empty()) return;
  const std::string value = line.substr(1);
  switch (line[0]) {
    case 'm':
      vocabulary.model = value;
      return;
    case 'p':
      vocabulary.pre = value;
      return;
    case 't':  // a token behind its type and its score, a byte each
      if (value.size() < 2) return;
      vocabulary.tokens.push_back(value.substr(2));
      vocabulary.token_types.push_back(value[0] - '0');
      vocabulary.scores.push_back(-static_cast<float>(value[1]));
      return;
    case 'g':
      vocabulary.merges.push_back(value);
      return;
    case 'b':
      vocabulary.bos_id = Number(value);
      return;
    case 'e':
      vocabulary.eos_id = Number(value);
      return;
    case 'u':
      vocabulary.unk_id = Number(value);
      return;
    case 'x':
      vocabulary.end_ids.push_back(Number(value));
      return;
    case 's':
      vocabulary.add_space_prefix = value == "1";
      return;
    case 'd':  // no types
      vocabulary.token_types.clear();
      return;
    default:
      return;
  }
}

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  lowkey::GgufVocabulary vocabulary;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    lowkey::ReadLine(line, vocabulary);
  }
  const auto tokenizer = lowkey::MakeGgufTokenizer(std::move(vocabulary), "m.gguf");
  LK_CHECK(tokenizer.ok() || !tokenizer.status().message().empty());
  if (tokenizer.ok()) lowkey::CheckTokenizer(**tokenizer);
  return 0;
}

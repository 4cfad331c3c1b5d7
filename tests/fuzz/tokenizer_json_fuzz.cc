// One input is one tokenizer.json. Whatever is accepted must encode and decode anything.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/status_macros.h"
#include "tests/fuzz/tokenizer_checks.h"
#include "tokenizer/bpe/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto spec = lowkey::ParseTokenizerJson(text);
  LK_CHECK(spec.ok() || !spec.status().message().empty());
  if (!spec.ok()) return 0;
  const auto tokenizer = lowkey::BpeTokenizer::Create(*std::move(spec), {});
  LK_CHECK(tokenizer.ok() || !tokenizer.status().message().empty());
  if (tokenizer.ok()) lowkey::CheckTokenizer(**tokenizer);
  return 0;
}

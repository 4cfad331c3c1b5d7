// One input is one tokenizer.model. Whatever is accepted must encode and decode anything.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/status_macros.h"
#include "tests/fuzz/tokenizer_checks.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = lowkey::SentencePieceTokenizer::Create(bytes);
  LK_CHECK(tokenizer.ok() || !tokenizer.status().message().empty());
  if (!tokenizer.ok()) return 0;
  lowkey::CheckTokenizer(**tokenizer);
  const auto ids = (*tokenizer)->Encode("<s></s><unk><0x41><pad> the<sep>", {.add_bos = false});
  LK_CHECK(ids.ok());
  for (const int32_t id : *ids) LK_CHECK(!(*tokenizer)->IsControl(id));
  return 0;
}

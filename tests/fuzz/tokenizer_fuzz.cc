// One input is one tokenizer.model. Whatever is accepted must encode and decode anything.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status_macros.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

const std::vector<std::string>& NastyTexts() {
  static const std::vector<std::string> texts = {
      "",
      " ",
      std::string("\0", 1),
      std::string("a\0\0b", 4),
      "The quick brown fox; the the the.",
      "  spaces \n\t\r\n  everywhere   ",
      "<s></s><unk><0x41><pad><sep>",
      "\u2581\u2581a\u2581",
      "caf\u00E9 \u65E5\u672C\u8A9E \u1100\u1161\u11A8 \uFB01 \uFF21 \uFDFA",
      "\U0001F469\u200D\U0001F467 \U0010FFFF \uFFFD \uFEFF \u00AD",
      "e\u0301\u0327\u0323\u0301\u0327\u0323",
      "\x01\x02\x7F",
      std::string(300, 'a'),
      std::string(300, ' '),
  };
  return texts;
}

void EncodeAndDecode(const Tokenizer& tokenizer, const std::string& text,
                     const EncodeOptions& options) {
  const auto ids = tokenizer.Encode(text, options);
  LK_CHECK(ids.ok());
  const auto decoded = tokenizer.Decode(*ids);
  LK_CHECK(decoded.ok());
  LK_CHECK(!FindInvalidUtf8(*decoded).has_value());
  StreamDecoder stream(tokenizer);
  std::string joined;
  for (const int32_t id : *ids) {
    LK_CHECK(options.parse_special || !tokenizer.IsControl(id));
    joined += *stream.Append(id);
  }
  LK_CHECK(joined + stream.Finish() == *decoded);
}

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = lowkey::SentencePieceTokenizer::Create(bytes);
  if (!tokenizer.ok()) {
    LK_CHECK(!tokenizer.status().message().empty());
    return 0;
  }
  for (const std::string& text : lowkey::NastyTexts()) {
    lowkey::EncodeAndDecode(**tokenizer, text, {.add_bos = false});
    lowkey::EncodeAndDecode(**tokenizer, text, {.add_bos = false, .parse_special = true});
  }
  return 0;
}

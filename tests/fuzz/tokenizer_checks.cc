#include "tests/fuzz/tokenizer_checks.h"

#include <string>
#include <vector>

#include "engine/base/status_macros.h"
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
      "\x01\x02\x7F 12345 it's",
      std::string(300, 'a'),
      std::string(300, ' '),
  };
  return texts;
}

void EncodeAndDecode(const Tokenizer& tokenizer, const std::string& text,
                     const EncodeOptions& options) {
  const auto ids = tokenizer.Encode(text, options);
  if (!ids.ok()) {
    // A model may make too much of a text, or take too many steps.
    LK_CHECK(absl::IsInvalidArgument(ids.status()) && !ids.status().message().empty());
    return;
  }
  const auto decoded = tokenizer.Decode(*ids);
  LK_CHECK(decoded.ok());
  LK_CHECK(!FindInvalidUtf8(*decoded).has_value());
  StreamDecoder stream(tokenizer);
  std::string joined;
  for (const int32_t id : *ids) {
    joined += *stream.Append(id);
  }
  LK_CHECK(joined + stream.Finish() == *decoded);
}

}  // namespace

void CheckTokenizer(const Tokenizer& tokenizer) {
  for (const std::string& text : NastyTexts()) {
    EncodeAndDecode(tokenizer, text, {.add_bos = false});
    EncodeAndDecode(tokenizer, text, {.add_bos = false, .parse_special = true});
    const std::vector<ByteRange> literal = {{text.size() / 3, text.size() / 2}};
    EncodeAndDecode(tokenizer, text,
                    {.add_bos = false, .parse_special = true, .literal_ranges = literal});
  }
}

}  // namespace lowkey

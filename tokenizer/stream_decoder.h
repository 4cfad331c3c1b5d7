#ifndef LOWKEY_TOKENIZER_STREAM_DECODER_H_
#define LOWKEY_TOKENIZER_STREAM_DECODER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// Decodes ids one by one. Whatever the ids, what Append and Finish return joins to exactly
// Tokenizer::Decode of all of them with the same options, and each part is valid UTF-8. Text is
// held back only while it may still become another character: at most three bytes. Not
// thread-safe.
class StreamDecoder {
 public:
  // `tokenizer` must outlive this.
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {});

  // Takes the next id and returns the text that is now certain, often none. INVALID_ARGUMENT: the
  // id is negative or not below vocab_size; the decoder is as it was before.
  absl::StatusOr<std::string> Append(int32_t id);

  // Returns the rest of the text. The decoder can then decode another sequence from its beginning.
  std::string Finish();

 private:
  std::string AppendBytes(std::string_view bytes);
  std::string AppendText(std::string_view text);
  std::string FlushBytes();
  std::string AppendControl(int32_t id, Surface::Kind kind);
  void Reset();

  const Tokenizer& tokenizer_;
  const DecodeOptions options_;
  std::string held_bytes_;     // the beginning of a character
  bool strips_space_ = false;  // the text's leading space has not been seen yet
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_STREAM_DECODER_H_

#ifndef LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_SEGMENTATION_H_
#define LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_SEGMENTATION_H_

#include <string>
#include <vector>

#include "tokenizer/sentencepiece/segmenter.h"

namespace lowkey {

// The pieces of `text` as `segmenter` cuts it; one that no piece covers in brackets.
inline std::vector<std::string> CutPieces(const Segmenter& segmenter, std::string_view text) {
  std::vector<std::string> pieces;
  const absl::Status status = segmenter.Cut(text, nullptr, [&](const PieceSpan& segment) {
    const std::string piece(segment.text);
    pieces.push_back(segment.id.has_value() ? piece : "[" + piece + "]");
  });
  if (!status.ok()) pieces.push_back(status.ToString());
  return pieces;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_SEGMENTATION_H_

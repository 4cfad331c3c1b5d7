#ifndef LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_SEGMENTATION_H_
#define LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_SEGMENTATION_H_

#include <string>
#include <vector>

#include "tokenizer/sentencepiece/segmenter.h"

namespace lowkey {

// The pieces of `text` as `segmenter` cuts it; one that no piece covers in brackets.
inline std::vector<std::string> CutPieces(const Segmenter& segmenter, std::string_view text) {
  std::vector<std::string> pieces;
  for (const PieceSpan& segment : segmenter.Cut(text)) {
    const std::string piece(segment.text);
    pieces.push_back(segment.id.has_value() ? piece : "[" + piece + "]");
  }
  return pieces;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_SEGMENTATION_H_

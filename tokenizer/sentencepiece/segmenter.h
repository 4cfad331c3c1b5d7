#ifndef LOWKEY_TOKENIZER_SENTENCEPIECE_SEGMENTER_H_
#define LOWKEY_TOKENIZER_SENTENCEPIECE_SEGMENTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "tokenizer/interrupt.h"
#include "tokenizer/pieces.h"
#include "tokenizer/sentencepiece/model_proto.h"

namespace lowkey {

// A stretch of normalized text and the piece that it becomes.
struct PieceSpan {
  std::string_view text;      // never empty
  std::optional<int32_t> id;  // nullopt: one character that no piece covers
};

// Cuts normalized text into pieces. Only normal, unused and user-defined pieces are ever matched:
// text that spells a control or byte piece is text. Immutable, safe to share between threads.
class Segmenter {
 public:
  virtual ~Segmenter() = default;

  using Visit = absl::FunctionRef<void(const PieceSpan& segment)>;

  // Calls `visit` with the segments in order; their texts join to `normalized`, which must be valid
  // UTF-8 and have under 2^31 bytes. Returns the interrupt's error; null: nobody is asked.
  virtual absl::Status Cut(std::string_view normalized, Interrupt* interrupt,
                           Visit visit) const = 0;
};

// Merges byte pairs by score (Sennrich et al., 2016), in O(n log n).
// `model` must have passed ValidateModelProto; it and `user_defined` must outlive the result.
std::unique_ptr<Segmenter> MakeBpeSegmenter(const ModelProto& model, const PieceTrie& user_defined);

// Finds the most probable segmentation under a unigram model (Kudo, 2018), in O(n * longest piece).
std::unique_ptr<Segmenter> MakeUnigramSegmenter(const ModelProto& model);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_SENTENCEPIECE_SEGMENTER_H_

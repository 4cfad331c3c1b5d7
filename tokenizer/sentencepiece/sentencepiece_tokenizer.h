#ifndef LOWKEY_TOKENIZER_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_
#define LOWKEY_TOKENIZER_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tokenizer/pieces.h"
#include "tokenizer/sentencepiece/charsmap.h"
#include "tokenizer/sentencepiece/model_proto.h"
#include "tokenizer/sentencepiece/normalizer.h"
#include "tokenizer/sentencepiece/segmenter.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// A SentencePiece model. Adds bos unless the settings say otherwise.
//
// Decode(Encode(text)) == text if the model neither rewrites characters (identity normalization, no
// removal of extra whitespace) nor lacks them (byte fallback, or pieces for all of the text's
// characters), and the text is without U+2581, the character that SentencePiece writes for a space.
class SentencePieceTokenizer : public Tokenizer {
 public:
  // Takes a tokenizer.model's bytes, which may be hostile. The errors of ParseModelProto and
  // FromModel.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(std::string_view model_bytes,
                                                           const TokenizerSettings& settings = {});

  // Takes any model; `name` begins messages about it. The errors of ValidateModelProto and
  // Charsmap::Create; INVALID_ARGUMENT if `settings` names a token or an id that the model lacks.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromModel(ModelProto model,
                                                              const TokenizerSettings& settings,
                                                              const std::string& name);

  std::optional<int32_t> PieceToId(std::string_view piece) const override;
  bool IsControl(int32_t id) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(model_.pieces.size()); }
  std::optional<size_t> max_bytes_per_id() const override;

 private:
  SentencePieceTokenizer(ModelProto model, std::optional<Charsmap> charsmap);

  absl::Status EncodeText(std::string_view text, const EncodeOptions& options,
                          std::vector<int32_t>& ids) const override;
  Surface SurfaceOf(int32_t id) const override;
  std::string_view PieceOf(int32_t id) const override { return model_.pieces[id].text; }

  std::optional<int32_t> FindControl(std::string_view piece) const;
  // Encodes a part of a text, whose parts before it have become n_normalized_bytes.
  absl::Status EncodePlain(std::string_view text, Interrupt* interrupt, size_t& n_normalized_bytes,
                           std::vector<int32_t>& ids) const;
  absl::Status EncodeWithSpecials(std::string_view text, const EncodeOptions& options,
                                  std::vector<int32_t>& ids) const;

  const ModelProto model_;
  const PieceTrie user_defined_;
  const PieceTrie controls_;
  const Normalizer normalizer_;
  const std::unique_ptr<Segmenter> segmenter_;
  absl::flat_hash_map<std::string_view, int32_t> ids_;
  std::vector<std::string> surfaces_;  // by id
  std::vector<int32_t> byte_ids_;      // by byte; empty without byte fallback
  int32_t unk_id_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_

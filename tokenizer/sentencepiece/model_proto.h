#ifndef LOWKEY_TOKENIZER_SENTENCEPIECE_MODEL_PROTO_H_
#define LOWKEY_TOKENIZER_SENTENCEPIECE_MODEL_PROTO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

// The parts of a SentencePiece ModelProto (tokenizer.model) that decide how text is encoded and
// decoded. Values are SentencePiece's own field numbers and defaults.
//
// The bytes are read here and not by libsentencepiece: Debian's 0.1.97 trusts the model it is
// given, and exports a protobuf 3.14 runtime that cannot share a process with the one under gRPC.

enum class PieceType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

enum class SegmentationType : int32_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::kNormal;
};

struct ModelProto {
  std::vector<Piece> pieces;  // the index is the token id

  // trainer_spec
  SegmentationType segmentation = SegmentationType::kUnigram;
  bool byte_fallback = false;
  bool treat_whitespace_as_suffix = false;
  std::optional<int32_t> unk_id, bos_id, eos_id;  // set only where the file sets them
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  std::string unk_surface = " \xE2\x81\x87 ";

  // normalizer_spec
  std::string charsmap;  // precompiled_charsmap; empty: no character is rewritten
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  bool has_denormalizer = false;  // denormalizer_spec holds a charsmap
};

inline constexpr size_t kMaxModelBytes = size_t{64} << 20;
inline constexpr size_t kMaxPieces = size_t{1} << 20;
inline constexpr size_t kMaxPieceBytes = 512;
inline constexpr size_t kMaxTotalPieceBytes = size_t{16} << 20;

// Reads the wire format. Memory is bounded by the limits above and the size of `bytes`.
// INVALID_ARGUMENT: over a limit, truncated, or a known field of the wrong wire type or an unknown
// enum value. Fields that do not matter here are skipped. Nothing else is checked.
absl::StatusOr<ModelProto> ParseModelProto(std::string_view bytes);

// Checks what Tokenizer relies on. INVALID_ARGUMENT: no pieces; not exactly one unknown piece; an
// empty, repeated or non-UTF-8 piece; a score that is not finite; byte pieces malformed, incomplete
// or without byte_fallback; ids in trainer_spec that disagree with the pieces.
// UNIMPLEMENTED: a setting that would change the result and is not supported (word and char models,
// whitespace as suffix, unescaped whitespace, a denormalizer). The charsmap is Charsmap's to check.
absl::Status ValidateModelProto(const ModelProto& model);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_SENTENCEPIECE_MODEL_PROTO_H_

#include "tokenizer/sentencepiece/model_proto.h"

#include <bit>
#include <cmath>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/pieces.h"
#include "tokenizer/sentencepiece/wire_reader.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

absl::Status Read(const WireField& field, bool& out) {
  LK_ASSIGN_OR_RETURN(const uint64_t value, field.AsVarint());
  out = value != 0;
  return absl::OkStatus();
}

// int32 fields are sign-extended to 64 bits on the wire; the low half is the value.
absl::Status Read(const WireField& field, std::optional<int32_t>& out) {
  LK_ASSIGN_OR_RETURN(const uint64_t value, field.AsVarint());
  out = static_cast<int32_t>(static_cast<uint32_t>(value));
  return absl::OkStatus();
}

absl::Status Read(const WireField& field, std::string& out) {
  LK_ASSIGN_OR_RETURN(const std::string_view bytes, field.AsBytes());
  if (bytes.size() > kMaxPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("field ", field.number, ": ", bytes.size(),
                                                   " bytes, expected at most ", kMaxPieceBytes));
  }
  out.assign(bytes);
  return absl::OkStatus();
}

// Reads an enum of the values 1 to `max`.
template <typename Enum>
absl::Status ReadEnum(const WireField& field, const char* name, Enum max, Enum& out) {
  std::optional<int32_t> value;
  LK_RETURN_IF_ERROR(Read(field, value));
  if (*value < 1 || *value > static_cast<int32_t>(max)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " ", *value, ", expected 1 to ", static_cast<int32_t>(max)));
  }
  out = static_cast<Enum>(*value);
  return absl::OkStatus();
}

absl::Status ParsePieceField(const WireField& field, Piece& piece) {
  switch (field.number) {
    case 1:
      return Read(field, piece.text);
    case 2: {
      LK_ASSIGN_OR_RETURN(const uint32_t bits, field.AsFixed32());
      piece.score = std::bit_cast<float>(bits);
      return absl::OkStatus();
    }
    case 3:
      return ReadEnum(field, "type", PieceType::kByte, piece.type);
    default:
      return absl::OkStatus();
  }
}

absl::Status ParseTrainerField(const WireField& field, ModelProto& model) {
  switch (field.number) {
    case 3:
      return ReadEnum(field, "model_type", SegmentationType::kChar, model.segmentation);
    case 24:
      return Read(field, model.treat_whitespace_as_suffix);
    case 35:
      return Read(field, model.byte_fallback);
    case 40:
      return Read(field, model.unk_id);
    case 41:
      return Read(field, model.bos_id);
    case 42:
      return Read(field, model.eos_id);
    case 44:
      return Read(field, model.unk_surface);
    case 46:
      return Read(field, model.bos_piece);
    case 47:
      return Read(field, model.eos_piece);
    default:
      return absl::OkStatus();
  }
}

absl::Status ParseNormalizerField(const WireField& field, ModelProto& model) {
  switch (field.number) {
    case 2: {
      LK_ASSIGN_OR_RETURN(const std::string_view bytes, field.AsBytes());
      model.charsmap.assign(bytes);
      return absl::OkStatus();
    }
    case 3:
      return Read(field, model.add_dummy_prefix);
    case 4:
      return Read(field, model.remove_extra_whitespaces);
    case 5:
      return Read(field, model.escape_whitespaces);
    default:
      return absl::OkStatus();
  }
}

absl::Status ParseDenormalizerField(const WireField& field, ModelProto& model) {
  if (field.number != 2) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(const std::string_view bytes, field.AsBytes());
  model.has_denormalizer = !bytes.empty();
  return absl::OkStatus();
}

// Parses a nested message into `target` with `parse_field`; errors are prefixed with `name`.
template <typename Target>
absl::Status ParseNested(const WireField& field, const std::string& name, Target& target,
                         absl::Status (*parse_field)(const WireField&, Target&)) {
  LK_ASSIGN_OR_RETURN(const std::string_view bytes, Prefixed(name, field.AsBytes()));
  return Prefixed(name, ForEachWireField(bytes, [&](const WireField& nested) {
                    return parse_field(nested, target);
                  }));
}

absl::Status ParsePiece(const WireField& field, ModelProto& model, size_t& total_bytes) {
  const size_t id = model.pieces.size();
  if (id == kMaxPieces) {
    return absl::InvalidArgumentError(
        absl::StrCat("pieces: more than ", kMaxPieces, ", expected at most ", kMaxPieces));
  }
  Piece& piece = model.pieces.emplace_back();
  LK_RETURN_IF_ERROR(ParseNested(field, absl::StrCat("piece ", id), piece, &ParsePieceField));
  total_bytes += piece.text.size();
  if (total_bytes > kMaxTotalPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("pieces: more than ", kMaxTotalPieceBytes,
                                                   " bytes in all, expected at most ",
                                                   kMaxTotalPieceBytes));
  }
  return absl::OkStatus();
}

absl::Status PieceError(size_t id, const Piece& piece, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("piece ", id, " \"", absl::CHexEscape(piece.text), "\": ", what));
}

absl::Status CheckPiece(size_t id, const Piece& piece) {
  if (piece.text.empty()) return PieceError(id, piece, "empty, expected at least one character");
  if (piece.text.size() > kMaxPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("piece ", id, ": ", piece.text.size(),
                                                   " bytes, expected at most ", kMaxPieceBytes));
  }
  if (FindInvalidUtf8(piece.text).has_value()) {
    return PieceError(id, piece, "not UTF-8, expected valid UTF-8");
  }
  if (piece.text.find('\0') != std::string::npos) {
    return PieceError(id, piece, "holds a NUL, expected none");
  }
  if (!std::isfinite(piece.score)) {
    return PieceError(id, piece, absl::StrCat("score ", piece.score, ", expected a finite number"));
  }
  return absl::OkStatus();
}

absl::Status CheckBytePieces(const ModelProto& model) {
  std::vector<bool> found(256, false);
  size_t n_found = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type != PieceType::kByte) continue;
    if (!model.byte_fallback) {
      return PieceError(id, piece, "type byte, expected none without byte_fallback");
    }
    const std::optional<uint8_t> byte = ParseBytePiece(piece.text);
    if (!byte.has_value()) return PieceError(id, piece, "type byte, expected the form <0x0A>");
    found[*byte] = true;  // distinct texts are distinct bytes
    ++n_found;
  }
  if (model.byte_fallback && n_found != found.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("byte pieces: ", n_found, " with byte_fallback, expected 256"));
  }
  return absl::OkStatus();
}

// A stated id must name the piece that the file states for it. Negative: the model has none.
absl::Status CheckStatedId(const ModelProto& model, const std::string& name,
                           std::optional<int32_t> id, const std::string& expected_piece) {
  if (!id.has_value() || *id < 0) return absl::OkStatus();
  const size_t n_pieces = model.pieces.size();
  if (static_cast<size_t>(*id) >= n_pieces) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer_spec: ", name, " ", *id, ", expected less than ", n_pieces));
  }
  const std::string& piece = model.pieces[*id].text;
  if (piece == expected_piece) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("trainer_spec: ", name, " ", *id, " is piece \"",
                                                 absl::CHexEscape(piece), "\", expected \"",
                                                 absl::CHexEscape(expected_piece), "\""));
}

absl::Status CheckUnknownAndStatedIds(const ModelProto& model) {
  std::optional<size_t> unk_id;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type != PieceType::kUnknown) continue;
    if (unk_id.has_value()) {
      return PieceError(id, model.pieces[id],
                        absl::StrCat("type unknown, as is piece ", *unk_id, ", expected one"));
    }
    unk_id = id;
  }
  if (!unk_id.has_value()) {
    return absl::InvalidArgumentError("pieces: none of type unknown, expected one");
  }
  LK_RETURN_IF_ERROR(CheckStatedId(model, "unk_id", model.unk_id, model.pieces[*unk_id].text));
  LK_RETURN_IF_ERROR(CheckStatedId(model, "bos_id", model.bos_id, model.bos_piece));
  return CheckStatedId(model, "eos_id", model.eos_id, model.eos_piece);
}

absl::Status CheckSupported(const ModelProto& model) {
  if (model.segmentation != SegmentationType::kBpe &&
      model.segmentation != SegmentationType::kUnigram) {
    return absl::UnimplementedError(absl::StrCat("trainer_spec: model_type ",
                                                 static_cast<int32_t>(model.segmentation),
                                                 ", expected 1 (unigram) or 2 (BPE)"));
  }
  if (model.treat_whitespace_as_suffix) {
    return absl::UnimplementedError(
        "trainer_spec: treat_whitespace_as_suffix true, expected false");
  }
  if (!model.escape_whitespaces) {
    return absl::UnimplementedError("normalizer_spec: escape_whitespaces false, expected true");
  }
  if (model.has_denormalizer) {
    return absl::UnimplementedError("denormalizer_spec: has a charsmap, expected none");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelProto> ParseModelProto(std::string_view bytes) {
  if (bytes.size() > kMaxModelBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes, expected at most ", kMaxModelBytes));
  }
  ModelProto model;
  size_t total_piece_bytes = 0;
  const auto parse_field = [&](const WireField& field) {
    switch (field.number) {
      case 1:
        return ParsePiece(field, model, total_piece_bytes);
      case 2:
        return ParseNested(field, "trainer_spec", model, &ParseTrainerField);
      case 3:
        return ParseNested(field, "normalizer_spec", model, &ParseNormalizerField);
      case 5:
        return ParseNested(field, "denormalizer_spec", model, &ParseDenormalizerField);
      default:
        return absl::OkStatus();
    }
  };
  LK_RETURN_IF_ERROR(ForEachWireField(bytes, parse_field));
  // SentencePiece takes an empty name for its default.
  if (model.bos_piece.empty()) model.bos_piece = ModelProto().bos_piece;
  if (model.eos_piece.empty()) model.eos_piece = ModelProto().eos_piece;
  return model;
}

absl::Status ValidateModelProto(const ModelProto& model) {
  if (model.pieces.empty())
    return absl::InvalidArgumentError("pieces: none, expected at least one");
  LK_RETURN_IF_ERROR(CheckSupported(model));
  absl::flat_hash_set<std::string_view> seen;
  seen.reserve(model.pieces.size());
  size_t total_bytes = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    LK_RETURN_IF_ERROR(CheckPiece(id, piece));
    total_bytes += piece.text.size();
    if (total_bytes > kMaxTotalPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat("pieces: more than ", kMaxTotalPieceBytes,
                                                     " bytes in all, expected at most that"));
    }
    if (!seen.insert(piece.text).second) return PieceError(id, piece, "repeated, expected once");
  }
  if (FindInvalidUtf8(model.unk_surface).has_value()) {
    return absl::InvalidArgumentError("trainer_spec: unk_surface is not UTF-8");
  }
  LK_RETURN_IF_ERROR(CheckBytePieces(model));
  return CheckUnknownAndStatedIds(model);
}

}  // namespace lowkey

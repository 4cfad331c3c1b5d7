#include "tokenizer/stream_decoder.h"

#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(tokenizer), options_(options) {
  Reset();
}

void StreamDecoder::Reset() {
  const ModelProto& model = tokenizer_.model_;
  held_bytes_.clear();
  strips_space_ =
      !options_.keep_leading_space && (model.add_dummy_prefix || model.remove_extra_whitespaces);
}

absl::StatusOr<std::string> StreamDecoder::Append(int32_t id) {
  LK_RETURN_IF_ERROR(tokenizer_.CheckId(id));
  if (tokenizer_.bytes_[id].has_value()) {
    std::string text = AppendByte(*tokenizer_.bytes_[id]);
    // Bytes held back will be text too, whatever comes next.
    strips_space_ = false;
    return text;
  }
  std::string text = FlushBytes();
  const Piece& piece = tokenizer_.model_.pieces[id];
  switch (piece.type) {
    case PieceType::kControl:
      return text;
    case PieceType::kUnknown:
      text.append(tokenizer_.model_.unk_surface);
      if (!tokenizer_.model_.unk_surface.empty()) strips_space_ = false;
      return text;
    default:
      text.append(AppendPiece(piece.text));
      return text;
  }
}

std::string StreamDecoder::AppendPiece(std::string_view piece) {
  if (strips_space_) {
    const bool stripped = piece.starts_with(kSpaceSymbol);
    if (stripped) piece.remove_prefix(kSpaceSymbol.size());
    // A model that removes extra whitespace encodes no leading space, so all of them are taken off;
    // otherwise only the dummy prefix.
    const bool strips_all = tokenizer_.model_.remove_extra_whitespaces;
    if (!piece.empty() || (stripped && !strips_all)) strips_space_ = false;
  }
  std::string text(piece);
  absl::StrReplaceAll({{std::string(kSpaceSymbol), " "}}, &text);
  return text;
}

std::string StreamDecoder::AppendByte(uint8_t byte) {
  held_bytes_.push_back(static_cast<char>(byte));
  std::string text;
  std::string_view rest = held_bytes_;
  while (!rest.empty()) {
    const Utf8Char c = ExamineUtf8(rest);
    if (c.kind == Utf8Kind::kIncomplete) break;
    text.append(c.kind == Utf8Kind::kValid ? rest.substr(0, c.n_bytes) : kReplacementChar);
    rest.remove_prefix(c.n_bytes);
  }
  held_bytes_ = std::string(rest);
  return text;
}

std::string StreamDecoder::FlushBytes() {
  std::string text;
  for (size_t i = 0; i < held_bytes_.size(); ++i) text.append(kReplacementChar);
  held_bytes_.clear();
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text = FlushBytes();
  Reset();
  return text;
}

}  // namespace lowkey

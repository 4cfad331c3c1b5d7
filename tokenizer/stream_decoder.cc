#include "tokenizer/stream_decoder.h"

#include <algorithm>

#include "engine/base/status_macros.h"
#include "tokenizer/utf8.h"

namespace lowkey {

using LeadingSpace = DecodeRules::LeadingSpace;

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(tokenizer), options_(options) {
  Reset();
}

void StreamDecoder::Reset() {
  held_bytes_.clear();
  strips_space_ =
      !options_.keep_leading_space && tokenizer_.decode_rules_.leading_space != LeadingSpace::kKept;
}

absl::StatusOr<std::string> StreamDecoder::Append(int32_t id) {
  LK_RETURN_IF_ERROR(tokenizer_.CheckId(id));
  const Surface surface = tokenizer_.SurfaceOf(id);
  switch (surface.kind) {
    case Surface::Kind::kNone:
    case Surface::Kind::kBreak:
      return AppendControl(id, surface.kind);
    case Surface::Kind::kBytes:
      return AppendBytes(surface.text);
    case Surface::Kind::kText:
      break;
  }
  return AppendText(surface.text);
}

std::string StreamDecoder::AppendControl(int32_t id, Surface::Kind kind) {
  const std::string_view piece = tokenizer_.PieceOf(id);
  const auto& shown = options_.shown_pieces;
  if (!piece.empty() && std::find(shown.begin(), shown.end(), piece) != shown.end()) {
    strips_space_ = false;
    return FlushBytes().append(piece);
  }
  return kind == Surface::Kind::kBreak ? FlushBytes() : std::string();
}

std::string StreamDecoder::AppendText(std::string_view piece) {
  std::string text = FlushBytes();
  if (!text.empty()) strips_space_ = false;
  if (!strips_space_) return text.append(piece);
  const LeadingSpace rule = tokenizer_.decode_rules_.leading_space;
  if (rule == LeadingSpace::kAllOfFirstPiece) {
    strips_space_ = false;
    text = piece;
    std::erase(text, ' ');
    return text;
  }
  const bool is_stripped = piece.starts_with(' ');
  if (is_stripped) piece.remove_prefix(1);
  // With kOneOfEachPiece, a piece of one space leaves the text's beginning to the next piece.
  if (!piece.empty() || (is_stripped && rule != LeadingSpace::kOneOfEachPiece)) {
    strips_space_ = false;
  }
  return text.append(piece);
}

std::string StreamDecoder::AppendBytes(std::string_view bytes) {
  const bool is_one_byte_each =
      tokenizer_.decode_rules_.broken_utf8 == DecodeRules::BrokenUtf8::kByte;
  held_bytes_.append(bytes);
  std::string text;
  std::string_view rest = held_bytes_;
  while (!rest.empty()) {
    const Utf8Char c = ExamineUtf8(rest);
    if (c.kind == Utf8Kind::kIncomplete) break;
    text.append(c.kind == Utf8Kind::kValid ? rest.substr(0, c.n_bytes) : kReplacementChar);
    const bool is_byte = c.kind == Utf8Kind::kInvalid && is_one_byte_each;
    rest.remove_prefix(is_byte ? 1 : c.n_bytes);
  }
  held_bytes_ = std::string(rest);
  // The bytes that are held back will be text too, whatever comes next.
  const bool is_space_stripped = strips_space_ && text.starts_with(' ') &&
                                 tokenizer_.decode_rules_.leading_space == LeadingSpace::kOne;
  if (!bytes.empty()) strips_space_ = false;
  return is_space_stripped ? text.substr(1) : text;
}

std::string StreamDecoder::FlushBytes() {
  const bool is_one_each = tokenizer_.decode_rules_.broken_utf8 == DecodeRules::BrokenUtf8::kByte;
  const size_t n_broken = is_one_each ? held_bytes_.size() : !held_bytes_.empty();
  std::string text;
  for (size_t i = 0; i < n_broken; ++i) text.append(kReplacementChar);
  held_bytes_.clear();
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text = FlushBytes();
  Reset();
  return text;
}

}  // namespace lowkey

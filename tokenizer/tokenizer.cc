#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

absl::Status CheckRanges(absl::Span<const ByteRange> ranges, size_t n_bytes) {
  size_t least = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ByteRange& range = ranges[i];
    if (range.begin < least || range.end < range.begin || range.end > n_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("literal_ranges[", i, "]: [", range.begin, ", ", range.end,
                       "), expected a range within [", least, ", ", n_bytes, ")"));
    }
    least = range.end;
  }
  return absl::OkStatus();
}

absl::Status CheckDecodedBytes(size_t n_bytes, const DecodeOptions& options) {
  if (n_bytes <= options.max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("text: over ", options.max_bytes, " bytes, expected at most that"));
}

}  // namespace

absl::Status Tokenizer::ResolveSpecials(const OwnSpecials& own, const TokenizerSettings& settings) {
  bos_id_ = own.bos_id;
  std::optional<int32_t> eos_id = own.eos_id;
  LK_RETURN_IF_ERROR(FindPiece("bos_token", settings.bos_token, bos_id_));
  LK_RETURN_IF_ERROR(FindPiece("eos_token", settings.eos_token, eos_id));
  if (settings.bos_id.has_value()) {
    LK_RETURN_IF_ERROR(
        Prefixed(settings.bos_id_file + ": bos_token_id", CheckId(*settings.bos_id)));
    bos_id_ = settings.bos_id;
  }
  for (const int32_t id : settings.eos_ids) {
    LK_RETURN_IF_ERROR(Prefixed(settings.eos_ids_file + ": eos_token_id", CheckId(id)));
    if (std::find(eos_ids_.begin(), eos_ids_.end(), id) == eos_ids_.end()) eos_ids_.push_back(id);
  }
  if (eos_ids_.empty() && eos_id.has_value()) eos_ids_.push_back(*eos_id);
  adds_bos_ = settings.add_bos_token.value_or(own.adds_bos) && bos_id_.has_value();
  adds_eos_ = settings.add_eos_token.value_or(own.adds_eos) && !eos_ids_.empty();
  return absl::OkStatus();
}

absl::Status Tokenizer::FindPiece(const char* key, const std::optional<std::string>& piece,
                                  std::optional<int32_t>& id) const {
  if (!piece.has_value()) return absl::OkStatus();
  id = PieceToId(*piece);
  if (id.has_value()) return absl::OkStatus();
  constexpr size_t kMaxShownBytes = 128;
  return absl::InvalidArgumentError(absl::StrCat(
      key, " \"", absl::CHexEscape(piece->substr(0, kMaxShownBytes)), "\", expected a piece"));
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: ", text.size(), " bytes, expected at most ", kMaxTextBytes));
  }
  const std::optional<size_t> invalid = FindInvalidUtf8(text);
  if (invalid.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: not UTF-8 at byte ", *invalid, ", expected valid UTF-8"));
  }
  LK_RETURN_IF_ERROR(CheckRanges(options.literal_ranges, text.size()));
  LK_RETURN_IF_ERROR(Count(options.interrupt));
  const bool add_bos = options.add_bos.value_or(adds_bos_);
  const bool add_eos = options.add_eos.value_or(adds_eos_);
  if (add_bos && !bos_id_.has_value()) {
    return absl::InvalidArgumentError("add_bos: the model has no bos token, expected one");
  }
  if (add_eos && eos_ids_.empty()) {
    return absl::InvalidArgumentError("add_eos: the model has no eos token, expected one");
  }
  std::vector<int32_t> ids;
  if (add_bos) ids.push_back(*bos_id_);
  LK_RETURN_IF_ERROR(EncodeText(text, options, ids));
  if (add_eos) ids.push_back(eos_ids_[0]);
  return ids;
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> ids,
                                              const DecodeOptions& options) const {
  StreamDecoder decoder(*this, options);
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    const absl::StatusOr<std::string> next = decoder.Append(ids[i]);
    if (!next.ok()) return Prefixed(absl::StrCat("ids[", i, "]"), next.status());
    text.append(*next);
    LK_RETURN_IF_ERROR(CheckDecodedBytes(text.size(), options));
  }
  text.append(decoder.Finish());
  LK_RETURN_IF_ERROR(CheckDecodedBytes(text.size(), options));
  return text;
}

absl::Status Tokenizer::CheckId(int32_t id) const {
  if (id >= 0 && id < vocab_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("token id ", id, ", expected 0 to ", vocab_size() - 1));
}

absl::StatusOr<std::string_view> Tokenizer::IdToPiece(int32_t id) const {
  LK_RETURN_IF_ERROR(CheckId(id));
  return PieceOf(id);
}

std::optional<std::string_view> Tokenizer::BytesOf(int32_t id) const {
  if (!CheckId(id).ok()) return std::nullopt;
  const Surface surface = SurfaceOf(id);
  if (surface.text.empty()) return std::nullopt;
  return surface.text;
}

}  // namespace lowkey

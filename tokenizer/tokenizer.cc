#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

PieceTrie TrieOfType(const ModelProto& model, PieceType type) {
  std::vector<PieceTrie::Entry> entries;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type == type) {
      entries.push_back({model.pieces[id].text, static_cast<int32_t>(id)});
    }
  }
  return PieceTrie(std::move(entries));
}

std::unique_ptr<Segmenter> MakeSegmenter(const ModelProto& model, const PieceTrie& user_defined) {
  if (model.segmentation == SegmentationType::kBpe) return MakeBpeSegmenter(model, user_defined);
  return MakeUnigramSegmenter(model);
}

absl::Status Prefix(const std::string& prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, ": ", status.message()));
}

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

}  // namespace

Tokenizer::Tokenizer(ModelProto model, std::optional<Charsmap> charsmap)
    : model_(std::move(model)),
      user_defined_(TrieOfType(model_, PieceType::kUserDefined)),
      controls_(TrieOfType(model_, PieceType::kControl)),
      normalizer_({.add_dummy_prefix = model_.add_dummy_prefix,
                   .remove_extra_whitespaces = model_.remove_extra_whitespaces},
                  std::move(charsmap), user_defined_),
      segmenter_(MakeSegmenter(model_, user_defined_)),
      bytes_(model_.pieces.size()) {
  if (model_.byte_fallback) byte_ids_.resize(256);
  ids_.reserve(model_.pieces.size());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const Piece& piece = model_.pieces[id];
    ids_.emplace(piece.text, id);
    if (piece.type == PieceType::kUnknown) unk_id_ = id;
    if (piece.type != PieceType::kByte) continue;
    bytes_[id] = ParseBytePiece(piece.text);
    byte_ids_[*bytes_[id]] = id;
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(std::string_view model_bytes,
                                                             const TokenizerSettings& settings) {
  absl::StatusOr<ModelProto> model = ParseModelProto(model_bytes);
  if (!model.ok()) return Prefix("tokenizer.model", model.status());
  const absl::Status valid = ValidateModelProto(*model);
  if (!valid.ok()) return Prefix("tokenizer.model", valid);
  std::optional<Charsmap> charsmap;
  if (!model->charsmap.empty()) {
    absl::StatusOr<Charsmap> created = Charsmap::Create(model->charsmap);
    if (!created.ok()) return Prefix("tokenizer.model: precompiled_charsmap", created.status());
    charsmap = *std::move(created);
    model->charsmap = std::string();  // the Charsmap holds its own copy
  }
  auto tokenizer = absl::WrapUnique(new Tokenizer(*std::move(model), std::move(charsmap)));
  LK_RETURN_IF_ERROR(tokenizer->ResolveSpecialTokens(settings));
  return tokenizer;
}

absl::Status Tokenizer::ResolveSpecialTokens(const TokenizerSettings& settings) {
  bos_id_ = FindControl(model_.bos_piece);
  std::optional<int32_t> eos_id = FindControl(model_.eos_piece);
  if (settings.bos_token.has_value()) {
    bos_id_ = PieceToId(*settings.bos_token);
    if (!bos_id_.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bos_token \"", absl::CHexEscape(*settings.bos_token), "\", expected a piece"));
    }
  }
  if (settings.eos_token.has_value()) {
    eos_id = PieceToId(*settings.eos_token);
    if (!eos_id.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "eos_token \"", absl::CHexEscape(*settings.eos_token), "\", expected a piece"));
    }
  }
  if (settings.bos_id.has_value()) {
    const absl::Status status = CheckId(*settings.bos_id);
    if (!status.ok()) return Prefix(settings.bos_id_file + ": bos_token_id", status);
    bos_id_ = settings.bos_id;
  }
  for (const int32_t id : settings.eos_ids) {
    const absl::Status status = CheckId(id);
    if (!status.ok()) return Prefix(settings.eos_ids_file + ": eos_token_id", status);
    if (std::find(eos_ids_.begin(), eos_ids_.end(), id) == eos_ids_.end()) eos_ids_.push_back(id);
  }
  if (eos_ids_.empty() && eos_id.has_value()) eos_ids_.push_back(*eos_id);
  adds_bos_ = settings.add_bos_token.value_or(true) && bos_id_.has_value();
  adds_eos_ = settings.add_eos_token.value_or(false) && !eos_ids_.empty();
  return absl::OkStatus();
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
  LK_RETURN_IF_ERROR(options.parse_special ? EncodeWithSpecials(text, options.literal_ranges, ids)
                                           : EncodePlain(text, ids));
  if (add_eos) ids.push_back(eos_ids_[0]);
  return ids;
}

absl::Status Tokenizer::EncodeWithSpecials(std::string_view text,
                                           absl::Span<const ByteRange> literal_ranges,
                                           std::vector<int32_t>& ids) const {
  size_t begin = 0;
  size_t end = 0;
  while (end < text.size()) {
    while (!literal_ranges.empty() && literal_ranges[0].end <= end) literal_ranges.remove_prefix(1);
    const std::optional<PieceTrie::Match> match = controls_.LongestPrefix(text.substr(end));
    const bool is_recognised =
        match.has_value() &&
        (literal_ranges.empty() || literal_ranges[0].begin >= end + match->n_bytes);
    if (!is_recognised) {
      ++end;
      continue;
    }
    LK_RETURN_IF_ERROR(EncodePlain(text.substr(begin, end - begin), ids));
    ids.push_back(match->id);
    end += match->n_bytes;
    begin = end;
  }
  return EncodePlain(text.substr(begin), ids);
}

absl::Status Tokenizer::EncodePlain(std::string_view text, std::vector<int32_t>& ids) const {
  LK_ASSIGN_OR_RETURN(const std::string normalized, normalizer_.Normalize(text));
  bool after_unknown = false;
  for (const PieceSpan& segment : segmenter_->Cut(normalized)) {
    if (segment.id.has_value()) {
      ids.push_back(*segment.id);
    } else if (model_.byte_fallback) {
      for (const char c : segment.text) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (!after_unknown) {
      ids.push_back(unk_id_);  // a run of unknown characters is one token
    }
    after_unknown = !segment.id.has_value();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> ids,
                                              const DecodeOptions& options) const {
  StreamDecoder decoder(*this, options);
  std::string text;
  for (size_t i = 0; i < ids.size(); ++i) {
    absl::StatusOr<std::string> next = decoder.Append(ids[i]);
    if (!next.ok()) return Prefix(absl::StrCat("ids[", i, "]"), next.status());
    text.append(*next);
  }
  text.append(decoder.Finish());
  return text;
}

absl::Status Tokenizer::CheckId(int32_t id) const {
  if (id >= 0 && id < vocab_size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("token id ", id, ", expected 0 to ", vocab_size() - 1));
}

absl::StatusOr<std::string_view> Tokenizer::IdToPiece(int32_t id) const {
  LK_RETURN_IF_ERROR(CheckId(id));
  return std::string_view(model_.pieces[id].text);
}

std::optional<int32_t> Tokenizer::PieceToId(std::string_view piece) const {
  const auto it = ids_.find(piece);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

std::optional<int32_t> Tokenizer::FindControl(std::string_view piece) const {
  const std::optional<int32_t> id = PieceToId(piece);
  return id.has_value() && IsControl(*id) ? id : std::nullopt;
}

bool Tokenizer::IsControl(int32_t id) const {
  return CheckId(id).ok() && model_.pieces[id].type == PieceType::kControl;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory) {
  LK_ASSIGN_OR_RETURN(const std::string bytes,
                      ReadWholeFile(directory + "/tokenizer.model", kMaxModelBytes));
  LK_ASSIGN_OR_RETURN(const TokenizerSettings settings, LoadTokenizerSettings(directory));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(bytes, settings);
  if (!tokenizer.ok()) return Prefix(directory, tokenizer.status());
  return tokenizer;
}

}  // namespace lowkey

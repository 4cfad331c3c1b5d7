#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_replace.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/pieces.h"
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

DecodeRules RulesOf(const ModelProto& model) {
  using LeadingSpace = DecodeRules::LeadingSpace;
  DecodeRules rules = {.leading_space = LeadingSpace::kKept,
                       .broken_utf8 = DecodeRules::BrokenUtf8::kByte};
  if (model.add_dummy_prefix) rules.leading_space = LeadingSpace::kOneIfText;
  // A model that removes extra whitespace encodes no leading space, so all of them are taken off.
  if (model.remove_extra_whitespaces) rules.leading_space = LeadingSpace::kOneOfEachPiece;
  return rules;
}

std::string SurfaceText(const ModelProto& model, const Piece& piece) {
  switch (piece.type) {
    case PieceType::kControl:
      return "";
    case PieceType::kUnknown:
      return model.unk_surface;
    case PieceType::kByte:
      return std::string(1, static_cast<char>(*ParseBytePiece(piece.text)));
    default:
      return absl::StrReplaceAll(piece.text, {{std::string(kSpaceSymbol), " "}});
  }
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(ModelProto model, std::optional<Charsmap> charsmap)
    : Tokenizer(RulesOf(model)),
      model_(std::move(model)),
      user_defined_(TrieOfType(model_, PieceType::kUserDefined)),
      controls_(TrieOfType(model_, PieceType::kControl)),
      normalizer_({.add_dummy_prefix = model_.add_dummy_prefix,
                   .remove_extra_whitespaces = model_.remove_extra_whitespaces},
                  std::move(charsmap), user_defined_),
      segmenter_(MakeSegmenter(model_, user_defined_)) {
  if (model_.byte_fallback) byte_ids_.resize(256);
  ids_.reserve(model_.pieces.size());
  surfaces_.reserve(model_.pieces.size());
  for (int32_t id = 0; id < vocab_size(); ++id) {
    const Piece& piece = model_.pieces[id];
    ids_.emplace(piece.text, id);
    surfaces_.push_back(SurfaceText(model_, piece));
    if (piece.type == PieceType::kUnknown) unk_id_ = id;
    if (piece.type == PieceType::kByte) byte_ids_[*ParseBytePiece(piece.text)] = id;
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Create(
    std::string_view model_bytes, const TokenizerSettings& settings) {
  const std::string kName = "tokenizer.model";
  LK_ASSIGN_OR_RETURN(ModelProto model, Prefixed(kName, ParseModelProto(model_bytes)));
  return FromModel(std::move(model), settings, kName);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::FromModel(
    ModelProto model, const TokenizerSettings& settings, const std::string& name) {
  LK_RETURN_IF_ERROR(Prefixed(name, ValidateModelProto(model)));
  std::optional<Charsmap> charsmap;
  if (!model.charsmap.empty()) {
    LK_ASSIGN_OR_RETURN(
        charsmap, Prefixed(name + ": precompiled_charsmap", Charsmap::Create(model.charsmap)));
    model.charsmap = std::string();  // the Charsmap holds its own copy
  }
  auto tokenizer =
      absl::WrapUnique(new SentencePieceTokenizer(std::move(model), std::move(charsmap)));
  const OwnSpecials own = {.bos_id = tokenizer->FindControl(tokenizer->model_.bos_piece),
                           .eos_id = tokenizer->FindControl(tokenizer->model_.eos_piece),
                           .adds_bos = true};
  LK_RETURN_IF_ERROR(tokenizer->ResolveSpecials(own, settings));
  return tokenizer;
}

absl::Status SentencePieceTokenizer::EncodeText(std::string_view text, const EncodeOptions& options,
                                                std::vector<int32_t>& ids) const {
  size_t n_normalized_bytes = 0;
  if (!options.parse_special) return EncodePlain(text, options.interrupt, n_normalized_bytes, ids);
  return EncodeWithSpecials(text, options, ids);
}

absl::Status SentencePieceTokenizer::EncodeWithSpecials(std::string_view text,
                                                        const EncodeOptions& options,
                                                        std::vector<int32_t>& ids) const {
  size_t n_normalized_bytes = 0;
  absl::Span<const ByteRange> literal_ranges = options.literal_ranges;
  size_t begin = 0;
  size_t end = 0;
  while (end < text.size()) {
    while (!literal_ranges.empty() &&
           literal_ranges[0].end <= std::max(end, literal_ranges[0].begin)) {
      literal_ranges.remove_prefix(1);
    }
    const std::optional<PieceTrie::Match> match = controls_.LongestPrefix(text.substr(end));
    const bool is_recognized =
        match.has_value() &&
        (literal_ranges.empty() || literal_ranges[0].begin >= end + match->n_bytes);
    if (!is_recognized) {
      ++end;
      continue;
    }
    LK_RETURN_IF_ERROR(
        EncodePlain(text.substr(begin, end - begin), options.interrupt, n_normalized_bytes, ids));
    ids.push_back(match->id);
    end += match->n_bytes;
    begin = end;
  }
  return EncodePlain(text.substr(begin), options.interrupt, n_normalized_bytes, ids);
}

absl::Status SentencePieceTokenizer::EncodePlain(std::string_view text, Interrupt* interrupt,
                                                 size_t& n_normalized_bytes,
                                                 std::vector<int32_t>& ids) const {
  LK_ASSIGN_OR_RETURN(const std::string normalized, normalizer_.Normalize(text, interrupt));
  n_normalized_bytes += normalized.size();
  LK_RETURN_IF_ERROR(Normalizer::CheckSize(n_normalized_bytes));
  bool after_unknown = false;
  return segmenter_->Cut(normalized, interrupt, [&](const PieceSpan& segment) {
    if (segment.id.has_value()) {
      ids.push_back(*segment.id);
    } else if (model_.byte_fallback) {
      for (const char c : segment.text) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (!after_unknown) {
      ids.push_back(unk_id_);  // a run of unknown characters is one token
    }
    after_unknown = !segment.id.has_value();
  });
}

std::optional<size_t> SentencePieceTokenizer::max_bytes_per_id() const {
  // Without bytes to fall back to, any run of unknown characters is one id.
  if (!normalizer_.KeepsBytes() || !model_.byte_fallback) return std::nullopt;
  size_t longest = 1;
  for (const Piece& piece : model_.pieces) longest = std::max(longest, piece.text.size());
  return longest;
}

std::optional<int32_t> SentencePieceTokenizer::PieceToId(std::string_view piece) const {
  const auto it = ids_.find(piece);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

std::optional<int32_t> SentencePieceTokenizer::FindControl(std::string_view piece) const {
  const std::optional<int32_t> id = PieceToId(piece);
  return id.has_value() && IsControl(*id) ? id : std::nullopt;
}

bool SentencePieceTokenizer::IsControl(int32_t id) const {
  return id >= 0 && id < vocab_size() && model_.pieces[id].type == PieceType::kControl;
}

Surface SentencePieceTokenizer::SurfaceOf(int32_t id) const {
  const std::string& text = surfaces_[id];
  switch (model_.pieces[id].type) {
    case PieceType::kByte:
      return {Surface::Kind::kBytes, text};
    case PieceType::kUnknown:
      // The surface counts as bytes: its leading space is no dummy prefix.
      return {text.empty() ? Surface::Kind::kBreak : Surface::Kind::kBytes, text};
    case PieceType::kControl:
      return {Surface::Kind::kBreak, {}};
    default:
      return {Surface::Kind::kText, text};
  }
}

}  // namespace lowkey

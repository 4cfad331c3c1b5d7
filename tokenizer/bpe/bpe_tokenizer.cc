#include "tokenizer/bpe/bpe_tokenizer.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "tokenizer/bpe/byte_level.h"
#include "tokenizer/pieces.h"

namespace lowkey {
namespace {

// Returns one char per byte: 1 where a user wrote it, else 0.
std::string MarkLiteral(size_t n_bytes, absl::Span<const ByteRange> ranges) {
  std::string literal(n_bytes, 0);
  for (const ByteRange& range : ranges) {
    std::fill(literal.begin() + static_cast<ptrdiff_t>(range.begin),
              literal.begin() + static_cast<ptrdiff_t>(range.end), 1);
  }
  return literal;
}

}  // namespace

BpeTokenizer::BpeTokenizer(BpeModel model, AddedTokens added_tokens, BpeSpec spec)
    : Tokenizer(spec.decoder.rules),
      model_(std::move(model)),
      added_tokens_(std::move(added_tokens)),
      rewriter_(std::move(spec.rewriter)),
      pre_tokenizer_(std::move(spec.pre_tokenizer)),
      tokens_(model_.pieces().size()) {
  for (size_t id = 0; id < tokens_.size(); ++id) {
    tokens_[id].piece = tokens_[id].spelled = model_.pieces()[id];
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(BpeSpec spec,
                                                                TokenizerSettings settings) {
  LK_ASSIGN_OR_RETURN(BpeModel model, BpeModel::Create(std::move(spec.vocabulary)));
  LK_ASSIGN_OR_RETURN(AddedTokens added_tokens,
                      AddedTokens::Create(std::move(spec.added_tokens), Rewriter(spec.rewriter)));
  const BpeDecoder decoder = spec.decoder;
  const OwnSpecials own = {.bos_id = spec.prefix_id,
                           .eos_id = spec.suffix_id,
                           .adds_bos = spec.prefix_id.has_value(),
                           .adds_eos = spec.suffix_id.has_value()};
  // The ids that the file puts around a text are bos and eos, whatever other files say.
  if (spec.prefix_id.has_value()) {
    settings.bos_token.reset();
    settings.bos_id = spec.prefix_id;
    settings.bos_id_file = "post_processor";
  }
  if (spec.suffix_id.has_value()) {
    settings.eos_ids.insert(settings.eos_ids.begin(), *spec.suffix_id);
    settings.eos_ids_file = "post_processor";
  }
  auto tokenizer = absl::WrapUnique(
      new BpeTokenizer(std::move(model), std::move(added_tokens), std::move(spec)));
  LK_RETURN_IF_ERROR(tokenizer->IndexAddedTokens());
  tokenizer->MakeSurfaces(decoder);
  LK_RETURN_IF_ERROR(tokenizer->ResolveSpecials(own, settings));
  return tokenizer;
}

absl::Status BpeTokenizer::IndexAddedTokens() {
  for (const AddedToken& added : added_tokens_.tokens()) {
    const auto error = [&](const std::string& expected) {
      return absl::InvalidArgumentError(absl::StrCat("added_tokens: \"",
                                                     absl::CHexEscape(added.content), "\": id ",
                                                     added.id, ", expected ", expected));
    };
    if (added.id < 0 || static_cast<size_t>(added.id) >= BpeModel::kMaxPieces) {
      return error(absl::StrCat("0 to ", BpeModel::kMaxPieces - 1));
    }
    if (const auto id = model_.Find(added.content); id.has_value() && *id != added.id) {
      return error(absl::StrCat(*id, " as in vocab"));
    }
    const size_t id = static_cast<size_t>(added.id);
    if (id >= tokens_.size()) tokens_.resize(id + 1);
    Token& token = tokens_[id];
    if (!token.piece.empty() && token.piece != added.content) {
      return error(
          absl::StrCat("one that is not \"", absl::CHexEscape(std::string(token.piece)), "\""));
    }
    token.piece = added.content;
    token.spelled = added.searched;
    token.is_control = token.is_control || added.is_special;
    added_ids_.emplace(added.content, added.id);
  }
  return absl::OkStatus();
}

void BpeTokenizer::MakeSurfaces(const BpeDecoder& decoder) {
  for (Token& token : tokens_) {
    if (token.piece.empty() || token.is_control) continue;
    token.kind = decoder.unspells ? Surface::Kind::kBytes : Surface::Kind::kText;
    token.surface = decoder.unspells ? UnspellBytes(token.spelled) : std::string(token.spelled);
    for (const auto& [from, to] : decoder.replacements) {
      token.surface = absl::StrReplaceAll(token.surface, {{from, to}});
    }
    const std::optional<uint8_t> byte = ParseBytePiece(token.surface);
    if (!decoder.reads_bytes || !byte.has_value()) continue;
    token.kind = Surface::Kind::kBytes;
    token.surface = std::string(1, static_cast<char>(*byte));
  }
}

std::optional<int32_t> BpeTokenizer::PieceToId(std::string_view piece) const {
  const auto it = added_ids_.find(piece);
  return it != added_ids_.end() ? it->second : model_.Find(piece);
}

bool BpeTokenizer::IsControl(int32_t id) const {
  return id >= 0 && id < vocab_size() && tokens_[id].is_control;
}

std::optional<size_t> BpeTokenizer::max_bytes_per_id() const {
  const std::optional<size_t> rewriter = rewriter_.MaxShrink(), words = pre_tokenizer_.MaxShrink();
  if (!rewriter.has_value() || !words.has_value()) return std::nullopt;
  if (!model_.CoversAllText(pre_tokenizer_.Spells())) return std::nullopt;
  for (const AddedToken& added : added_tokens_.tokens()) {
    if (added.takes_left_space || added.takes_right_space) return std::nullopt;
  }
  size_t longest = 4;  // a character that becomes the unknown token
  for (const Token& token : tokens_) {
    longest = std::max({longest, token.piece.size(), token.spelled.size()});
  }
  return longest * *rewriter * *words;
}

absl::Status BpeTokenizer::EncodeText(std::string_view text, const EncodeOptions& options,
                                      std::vector<int32_t>& ids) const {
  PatternBudget budget(text.size(), options.interrupt);
  Section whole = {.text = std::string(text), .literal = {}, .begins_text = true};
  if (options.parse_special && !options.literal_ranges.empty()) {
    whole.literal = MarkLiteral(text.size(), options.literal_ranges);
  }
  const auto push = [&](int32_t id) { ids.push_back(id); };
  size_t n_rewritten_bytes = 0;  // of all sections: each may be given the same prefix
  const auto rewrite = [&](Section section) -> absl::Status {
    LK_RETURN_IF_ERROR(rewriter_.Apply(section, budget));
    n_rewritten_bytes += section.text.size();
    LK_RETURN_IF_ERROR(Rewriter::CheckSize(n_rewritten_bytes));
    return added_tokens_.Split(
        section, {.in_rewritten_text = true, .parse_special = options.parse_special},
        [&](Section part) { return EncodeRewritten(std::move(part), budget, ids); }, push);
  };
  return added_tokens_.Split(whole, {.parse_special = options.parse_special}, rewrite, push);
}

absl::Status BpeTokenizer::EncodeRewritten(Section section, PatternBudget& budget,
                                           std::vector<int32_t>& ids) const {
  LK_ASSIGN_OR_RETURN(const Words words, pre_tokenizer_.Run(std::move(section), budget));
  // Most words of a text come again: this maps a word to the range of its ids in `ids`.
  absl::flat_hash_map<std::string_view, ByteRange> known;
  for (const ByteRange& range : words.ranges) {
    const std::string_view word(words.text.data() + range.begin, range.end - range.begin);
    const auto [it, is_new] = known.try_emplace(word);
    if (is_new) {
      it->second.begin = ids.size();
      LK_RETURN_IF_ERROR(model_.Encode(word, budget.interrupt, ids));
      it->second.end = ids.size();
    } else {
      for (size_t i = it->second.begin; i < it->second.end; ++i) ids.push_back(ids[i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace lowkey

#include "tokenizer/load/gguf_vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/bpe/bpe_tokenizer.h"
#include "tokenizer/load/gguf_words.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"

namespace lowkey {
namespace {

absl::Status KeyError(const char* key, const std::string& rest) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", key, ": ", rest));
}

absl::Status CheckLength(const char* key, size_t length, size_t n_tokens) {
  if (length == n_tokens) return absl::OkStatus();
  return KeyError(key, absl::StrCat(length, " items, expected ", n_tokens, " as in tokens"));
}

PieceType TypeOf(const GgufVocabulary& vocabulary, size_t id) {
  return vocabulary.token_types.empty() ? PieceType::kNormal
                                        : static_cast<PieceType>(vocabulary.token_types[id]);
}

absl::Status CheckLists(const GgufVocabulary& vocabulary) {
  const size_t n_tokens = vocabulary.tokens.size();
  if (n_tokens == 0 || n_tokens > kMaxPieces) {
    return KeyError("tokens", absl::StrCat(n_tokens, " items, expected 1 to ", kMaxPieces));
  }
  if (vocabulary.token_types.empty()) return absl::OkStatus();
  LK_RETURN_IF_ERROR(CheckLength("token_type", vocabulary.token_types.size(), n_tokens));
  for (size_t id = 0; id < n_tokens; ++id) {
    const int64_t type = vocabulary.token_types[id];
    if (type < 1 || type > 6) {
      return KeyError("token_type", absl::StrCat("[", id, "]: ", type, ", expected 1 to 6"));
    }
  }
  return absl::OkStatus();
}

TokenizerSettings SettingsOf(const GgufVocabulary& vocabulary) {
  TokenizerSettings settings;
  settings.add_bos_token = vocabulary.add_bos;
  settings.add_eos_token = vocabulary.add_eos;
  settings.bos_id = vocabulary.bos_id;
  if (vocabulary.eos_id.has_value()) settings.eos_ids.push_back(*vocabulary.eos_id);
  settings.eos_ids.insert(settings.eos_ids.end(), vocabulary.end_ids.begin(),
                          vocabulary.end_ids.end());
  settings.bos_id_file = settings.eos_ids_file = "tokenizer.ggml";
  return settings;
}

// A SentencePiece model has one unknown piece, but a converted vocabulary may give the type to two
// tokens (phi-3's does), or to none and have <unk> as a control token. The token of unk_id, or else
// the first one of the type, is the unknown piece. Others become control tokens, as in llama.cpp.
void KeepOneUnknown(ModelProto& model) {
  const auto is_unknown = [](const Piece& piece) { return piece.type == PieceType::kUnknown; };
  auto kept = std::find_if(model.pieces.begin(), model.pieces.end(), is_unknown);
  const auto declared = static_cast<size_t>(model.unk_id.value_or(-1));
  if (declared < model.pieces.size() &&
      (is_unknown(model.pieces[declared]) || model.pieces[declared].type == PieceType::kControl)) {
    kept = model.pieces.begin() + static_cast<ptrdiff_t>(declared);
  }
  for (Piece& piece : model.pieces) {
    if (is_unknown(piece)) piece.type = PieceType::kControl;
  }
  if (kept != model.pieces.end()) kept->type = PieceType::kUnknown;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeScored(GgufVocabulary vocabulary) {
  LK_RETURN_IF_ERROR(CheckLength("scores", vocabulary.scores.size(), vocabulary.tokens.size()));
  const TokenizerSettings settings = SettingsOf(vocabulary);
  ModelProto model;
  model.segmentation = SegmentationType::kBpe;
  model.byte_fallback = true;
  model.add_dummy_prefix = vocabulary.add_space_prefix.value_or(true);
  model.remove_extra_whitespaces = false;
  model.unk_id = vocabulary.unk_id;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    model.pieces.push_back({.text = std::move(vocabulary.tokens[id]),
                            .score = vocabulary.scores[id],
                            .type = TypeOf(vocabulary, id)});
  }
  KeepOneUnknown(model);
  return SentencePieceTokenizer::FromModel(std::move(model), settings, "tokenizer.ggml.tokens");
}

absl::Status AppendMerges(const std::vector<std::string>& merges, BpeVocabulary& vocabulary) {
  for (size_t i = 0; i < merges.size(); ++i) {
    // A token may hold spaces, but no token of a byte-level vocabulary does.
    const size_t space = merges[i].find(' ', 1);
    if (space == std::string::npos) {
      return KeyError("merges", absl::StrCat("[", i, "]: \"", absl::CHexEscape(merges[i]),
                                             "\", expected two tokens with a space between"));
    }
    vocabulary.merges.push_back({merges[i].substr(0, space), merges[i].substr(space + 1)});
  }
  return absl::OkStatus();
}

// Control tokens are found in a text as a whole and take no part in merges; user-defined ones may
// do both.
void AppendTokens(GgufVocabulary& vocabulary, BpeSpec& spec) {
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    PieceType type = TypeOf(vocabulary, id);
    // Some files call the end of a turn user-defined: a user could then spell it.
    const auto is_id = [id](int32_t end) { return static_cast<size_t>(end) == id; };
    const bool is_end = (vocabulary.eos_id.has_value() && is_id(*vocabulary.eos_id)) ||
                        std::any_of(vocabulary.end_ids.begin(), vocabulary.end_ids.end(), is_id);
    if (is_end && type == PieceType::kUserDefined) type = PieceType::kControl;
    const bool is_control = type == PieceType::kControl || type == PieceType::kUnknown;
    std::string& token = vocabulary.tokens[id];
    if (is_control || type == PieceType::kUserDefined) {
      spec.added_tokens.push_back(
          {.id = static_cast<int32_t>(id), .content = token, .is_special = is_control});
    }
    spec.vocabulary.pieces.push_back(is_control ? std::string() : std::move(token));
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeMerged(GgufVocabulary vocabulary) {
  const std::optional<GgufWords> words = FindGgufWords(vocabulary.pre);
  if (!words.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "tokenizer.ggml.pre: \"", absl::CHexEscape(vocabulary.pre), "\" is not supported"));
  }
  TokenizerSettings settings = SettingsOf(vocabulary);
  settings.add_bos_token = vocabulary.add_bos.value_or(words->adds_bos);
  BpeSpec spec;
  if (vocabulary.add_space_prefix.value_or(false)) {
    spec.pre_tokenizer.emplace_back(PrependOnce{" ", PrependOnce::Where::kEachWord});
  }
  for (const std::string_view regex : words->regexes) {
    LK_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromRegex(regex));
    spec.pre_tokenizer.emplace_back(Cut{std::move(pattern)});
  }
  spec.pre_tokenizer.emplace_back(Spell{});
  spec.decoder.unspells = true;
  spec.decoder.rules.broken_utf8 = DecodeRules::BrokenUtf8::kSequence;
  spec.vocabulary.ignores_merges = words->ignores_merges;
  LK_RETURN_IF_ERROR(AppendMerges(vocabulary.merges, spec.vocabulary));
  AppendTokens(vocabulary, spec);
  return BpeTokenizer::Create(std::move(spec), std::move(settings));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Make(GgufVocabulary vocabulary) {
  LK_RETURN_IF_ERROR(CheckLists(vocabulary));
  if (vocabulary.model == "llama") return MakeScored(std::move(vocabulary));
  if (vocabulary.model == "gpt2") return MakeMerged(std::move(vocabulary));
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model: \"",
                                               absl::CHexEscape(vocabulary.model),
                                               "\" is not supported, expected llama or gpt2"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeGgufTokenizer(GgufVocabulary vocabulary,
                                                             const std::string& name) {
  return Prefixed(name, Make(std::move(vocabulary)));
}

}  // namespace lowkey

#include "tokenizer/bpe/tokenizer_json.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using Json = nlohmann::json;

absl::StatusOr<std::vector<std::string>> ParseVocab(const JsonValue& json) {
  if (!json.get().is_object()) return json.Error("an object");
  if (json.get().size() > BpeModel::kMaxPieces) {
    return absl::InvalidArgumentError(absl::StrCat(
        json.path(), ": ", json.get().size(), " pieces, expected at most ", BpeModel::kMaxPieces));
  }
  std::vector<std::string> pieces;
  for (const auto& item : json.get().items()) {
    const std::string& piece = item.key();
    const Json& value = item.value();
    const auto error = [&](const std::string& expected) {
      return JsonValue(value, absl::StrCat(json.path(), "[\"", piece, "\"]")).Error(expected);
    };
    if (piece.empty()) return error("a piece that is not empty");
    const int64_t id = value.is_number_integer() ? value.get<int64_t>() : -1;
    if (id < 0 || id >= static_cast<int64_t>(BpeModel::kMaxPieces)) {
      return error(absl::StrCat("an id from 0 to ", BpeModel::kMaxPieces - 1));
    }
    const size_t index = static_cast<size_t>(id);
    if (index >= pieces.size()) pieces.resize(index + 1);
    if (!pieces[index].empty()) return error("an id of its own");
    pieces[index] = piece;
  }
  return pieces;
}

// Parses a pair, or both in one string with a space between.
absl::StatusOr<MergeRule> ParseMerge(const Json& json, const JsonValue& merges, size_t index) {
  if (const auto* const text = json.get_ptr<const std::string*>(); text != nullptr) {
    const size_t space = text->find(' ');
    if (space != std::string::npos && text->find(' ', space + 1) == std::string::npos) {
      return MergeRule{text->substr(0, space), text->substr(space + 1)};
    }
  } else if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string()) {
    return MergeRule{json[0].get<std::string>(), json[1].get<std::string>()};
  }
  return JsonValue(json, absl::StrCat(merges.path(), "[", index, "]")).Error("two pieces");
}

absl::StatusOr<std::vector<MergeRule>> ParseMerges(const JsonValue& json) {
  if (!json.get().is_array()) return json.Error("an array");
  std::vector<MergeRule> merges;
  merges.reserve(json.get().size());
  for (const Json& item : json.get()) {
    LK_ASSIGN_OR_RETURN(merges.emplace_back(), ParseMerge(item, json, merges.size()));
  }
  return merges;
}

absl::StatusOr<BpeVocabulary> ParseModel(const JsonValue& json) {
  // Older files do not name the model.
  const std::optional<JsonValue> type = json.Find("type");
  if (type.has_value() && type->get() != "BPE") return type->Unsupported();
  const std::optional<JsonValue> dropout = json.Find("dropout");
  if (dropout.has_value() && dropout->get() != 0.0) return dropout->Unsupported();
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::optional<JsonValue> affix = json.Find(key);
    if (affix.has_value() && affix->get() != "") return affix->Unsupported();
  }
  BpeVocabulary vocabulary;
  LK_ASSIGN_OR_RETURN(vocabulary.fuses_unk, json.FlagOr("fuse_unk", false));
  LK_ASSIGN_OR_RETURN(vocabulary.falls_to_bytes, json.FlagOr("byte_fallback", false));
  LK_ASSIGN_OR_RETURN(vocabulary.ignores_merges, json.FlagOr("ignore_merges", false));
  if (const auto unk = json.Find("unk_token"); unk.has_value()) {
    LK_ASSIGN_OR_RETURN(vocabulary.unk_piece, unk->Text());
  }
  LK_ASSIGN_OR_RETURN(const JsonValue vocab, json.Get("vocab"));
  LK_ASSIGN_OR_RETURN(vocabulary.pieces, ParseVocab(vocab));
  LK_ASSIGN_OR_RETURN(const JsonValue merges, json.Get("merges"));
  LK_ASSIGN_OR_RETURN(vocabulary.merges, ParseMerges(merges));
  return vocabulary;
}

absl::StatusOr<AddedToken> ParseAddedToken(const JsonValue& json) {
  AddedToken token;
  LK_ASSIGN_OR_RETURN(const JsonValue id, json.Get("id"));
  LK_ASSIGN_OR_RETURN(token.id, id.Id());
  LK_ASSIGN_OR_RETURN(token.content, json.Text("content"));
  LK_ASSIGN_OR_RETURN(token.is_special, json.Flag("special"));
  LK_ASSIGN_OR_RETURN(token.is_normalized, json.Flag("normalized"));
  LK_ASSIGN_OR_RETURN(token.is_single_word, json.Flag("single_word"));
  LK_ASSIGN_OR_RETURN(token.takes_left_space, json.Flag("lstrip"));
  LK_ASSIGN_OR_RETURN(token.takes_right_space, json.Flag("rstrip"));
  return token;
}

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const JsonValue& json) {
  std::vector<AddedToken> tokens;
  const std::optional<JsonValue> list = json.Find("added_tokens");
  if (!list.has_value()) return tokens;
  LK_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list->Items());
  for (const JsonValue& item : items) {
    LK_ASSIGN_OR_RETURN(tokens.emplace_back(), ParseAddedToken(item));
  }
  return tokens;
}

// Returns the one id that `name` stands for in a template.
absl::StatusOr<int32_t> ParseTemplateId(const JsonValue& json, const std::string& name) {
  LK_ASSIGN_OR_RETURN(const JsonValue tokens, json.Get("special_tokens"));
  LK_ASSIGN_OR_RETURN(const JsonValue token, tokens.Get(name));
  LK_ASSIGN_OR_RETURN(const JsonValue list, token.Get("ids"));
  LK_ASSIGN_OR_RETURN(const std::vector<JsonValue> ids, list.Items());
  if (ids.size() != 1) return list.Unsupported();
  return ids[0].Id();
}

absl::Status ParseTemplate(const JsonValue& json, BpeSpec& spec) {
  LK_ASSIGN_OR_RETURN(const JsonValue list, json.Get("single"));
  LK_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, list.Items());
  bool after_text = false;
  for (const JsonValue& item : items) {
    if (item.Find("Sequence").has_value()) {
      if (std::exchange(after_text, true)) return item.Unsupported();
      continue;
    }
    LK_ASSIGN_OR_RETURN(const JsonValue special, item.Get("SpecialToken"));
    LK_ASSIGN_OR_RETURN(const std::string name, special.Text("id"));
    std::optional<int32_t>& id = after_text ? spec.suffix_id : spec.prefix_id;
    if (id.has_value()) return item.Unsupported();
    LK_ASSIGN_OR_RETURN(id, ParseTemplateId(json, name));
  }
  return after_text ? absl::OkStatus() : list.Unsupported();
}

absl::Status ParsePostProcessor(const JsonValue& json, BpeSpec& spec) {
  LK_ASSIGN_OR_RETURN(const JsonValue type, json.Get("type"));
  if (type.get() == "ByteLevel") return absl::OkStatus();  // it moves offsets alone
  if (type.get() == "TemplateProcessing") return ParseTemplate(json, spec);
  if (type.get() != "Sequence") return type.Unsupported();
  LK_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, json.Items("processors"));
  for (const JsonValue& item : items) LK_RETURN_IF_ERROR(ParsePostProcessor(item, spec));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BpeSpec> ParseTokenizerJson(std::string_view text) {
  const std::string kName = "tokenizer.json";
  LK_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, kName));
  const JsonValue root(json, kName + ": ");
  BpeSpec spec;
  LK_ASSIGN_OR_RETURN(const JsonValue model, root.Get("model"));
  LK_ASSIGN_OR_RETURN(spec.vocabulary, ParseModel(model));
  LK_ASSIGN_OR_RETURN(spec.added_tokens, ParseAddedTokens(root));
  LK_ASSIGN_OR_RETURN(spec.rewriter, ParseNormalizer(root));
  LK_ASSIGN_OR_RETURN(spec.pre_tokenizer, ParsePreTokenizer(root));
  LK_ASSIGN_OR_RETURN(spec.decoder, ParseDecoder(root));
  if (const auto post_processor = root.Find("post_processor"); post_processor.has_value()) {
    LK_RETURN_IF_ERROR(ParsePostProcessor(*post_processor, spec));
  }
  return spec;
}

}  // namespace lowkey

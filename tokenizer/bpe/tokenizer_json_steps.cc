// The normalizer, pre-tokenizer and decoder of a tokenizer.json.

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "tokenizer/bpe/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

constexpr size_t kMaxSteps = 64;  // each goes over the whole text

absl::Status CheckSteps(const JsonValue& json, size_t n_steps) {
  if (n_steps <= kMaxSteps) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(json.path(), ": ", n_steps, " steps, expected at most ", kMaxSteps));
}

// The names of UnicodeForm and of Cut::Behavior, in their order.
constexpr std::string_view kUnicodeForms[] = {"NFC", "NFD", "NFKC", "NFKD"};
constexpr std::string_view kBehaviors[] = {"Isolated", "Removed", "MergedWithPrevious",
                                           "MergedWithNext", "Contiguous"};

// Returns the place of a text in `names`; UNIMPLEMENTED for any other value.
absl::StatusOr<size_t> IndexIn(absl::Span<const std::string_view> names, const JsonValue& json) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (json.get() == names[i]) return i;
  }
  return json.Unsupported();
}

absl::StatusOr<Pattern> ParsePattern(const JsonValue& json) {
  LK_ASSIGN_OR_RETURN(const JsonValue pattern, json.Get("pattern"));
  if (const auto text = pattern.Find("String"); text.has_value()) {
    LK_ASSIGN_OR_RETURN(const std::string string, text->Text());
    return Prefixed(text->path(), Pattern::FromString(string));
  }
  LK_ASSIGN_OR_RETURN(const JsonValue regex, pattern.Get("Regex"));
  LK_ASSIGN_OR_RETURN(const std::string string, regex.Text());
  return Prefixed(regex.path(), Pattern::FromRegex(string));
}

// Reads a text that a step puts into others, over and over.
absl::StatusOr<std::string> ParseContent(const JsonValue& json, const std::string& key) {
  LK_ASSIGN_OR_RETURN(const JsonValue value, json.Get(key));
  LK_ASSIGN_OR_RETURN(std::string content, value.Text());
  if (content.size() <= Pattern::kMaxStringBytes) return content;
  return absl::InvalidArgumentError(absl::StrCat(
      value.path(), ": ", content.size(), " bytes, expected at most ", Pattern::kMaxStringBytes));
}

absl::Status AppendNormalizer(const JsonValue& json, std::vector<RewriteStep>& steps) {
  LK_RETURN_IF_ERROR(CheckSteps(json, steps.size()));
  LK_ASSIGN_OR_RETURN(const JsonValue type, json.Get("type"));
  const nlohmann::json& name = type.get();
  if (name == "Sequence") {
    LK_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, json.Items("normalizers"));
    for (const JsonValue& item : items) LK_RETURN_IF_ERROR(AppendNormalizer(item, steps));
    return absl::OkStatus();
  }
  if (name == "Prepend") {
    LK_ASSIGN_OR_RETURN(std::string content, ParseContent(json, "prepend"));
    steps.emplace_back(Prepend{std::move(content)});
    return absl::OkStatus();
  }
  if (name == "Replace") {
    LK_ASSIGN_OR_RETURN(Pattern pattern, ParsePattern(json));
    LK_ASSIGN_OR_RETURN(std::string content, ParseContent(json, "content"));
    steps.emplace_back(Replace{std::move(pattern), std::move(content)});
    return absl::OkStatus();
  }
  LK_ASSIGN_OR_RETURN(const size_t form, IndexIn(kUnicodeForms, type));
  steps.emplace_back(static_cast<UnicodeForm>(form));
  return absl::OkStatus();
}

absl::Status AppendSplit(const JsonValue& json, std::vector<PreTokenizerStep>& steps) {
  LK_ASSIGN_OR_RETURN(Pattern pattern, ParsePattern(json));
  LK_ASSIGN_OR_RETURN(const bool inverts, json.FlagOr("invert", false));
  LK_ASSIGN_OR_RETURN(const JsonValue name, json.Get("behavior"));
  LK_ASSIGN_OR_RETURN(const size_t behavior, IndexIn(kBehaviors, name));
  steps.emplace_back(Cut{std::move(pattern), static_cast<Cut::Behavior>(behavior), inverts});
  return absl::OkStatus();
}

absl::Status AppendDigits(const JsonValue& json, std::vector<PreTokenizerStep>& steps) {
  LK_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromRegex("\\p{N}"));
  LK_ASSIGN_OR_RETURN(const bool is_individual, json.FlagOr("individual_digits", false));
  steps.emplace_back(Cut{std::move(pattern),
                         is_individual ? Cut::Behavior::kIsolated : Cut::Behavior::kContiguous});
  return absl::OkStatus();
}

absl::Status AppendByteLevel(const JsonValue& json, std::vector<PreTokenizerStep>& steps) {
  LK_ASSIGN_OR_RETURN(const bool adds_space, json.Flag("add_prefix_space"));
  LK_ASSIGN_OR_RETURN(const bool uses_regex, json.FlagOr("use_regex", true));
  if (adds_space) steps.emplace_back(PrependOnce{" ", PrependOnce::Where::kEachWord});
  if (uses_regex) {
    LK_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromRegex(kGpt2Regex));
    steps.emplace_back(Cut{std::move(pattern)});
  }
  steps.emplace_back(Spell{});
  return absl::OkStatus();
}

// Returns where Metaspace puts its symbol, if anywhere. Older files have add_prefix_space alone.
absl::StatusOr<std::optional<PrependOnce::Where>> MetaspacePrepends(const JsonValue& json) {
  LK_ASSIGN_OR_RETURN(const bool adds, json.FlagOr("add_prefix_space", true));
  const std::optional<JsonValue> scheme = json.Find("prepend_scheme");
  if (!scheme.has_value()) {
    if (!adds) return std::nullopt;
    return PrependOnce::Where::kEachWord;
  }
  if (scheme->get() == "never") return std::nullopt;
  if (!adds) return scheme->Error("\"never\", as add_prefix_space is false");
  if (scheme->get() == "always") return PrependOnce::Where::kEachWord;
  if (scheme->get() == "first") return PrependOnce::Where::kTextsBeginning;
  return scheme->Unsupported();
}

absl::StatusOr<std::string> MetaspaceSymbol(const JsonValue& json) {
  LK_ASSIGN_OR_RETURN(const JsonValue replacement, json.Get("replacement"));
  LK_ASSIGN_OR_RETURN(std::string symbol, replacement.Text());
  if (FindInvalidUtf8(symbol).has_value() || symbol.empty() ||
      Utf8Length(symbol) != symbol.size()) {
    return replacement.Error("one character");
  }
  return symbol;
}

absl::Status AppendMetaspace(const JsonValue& json, std::vector<PreTokenizerStep>& steps) {
  LK_ASSIGN_OR_RETURN(const std::string symbol, MetaspaceSymbol(json));
  LK_ASSIGN_OR_RETURN(const std::optional<PrependOnce::Where> where, MetaspacePrepends(json));
  LK_ASSIGN_OR_RETURN(const bool splits, json.FlagOr("split", true));
  LK_ASSIGN_OR_RETURN(Pattern space, Pattern::FromString(" "));
  LK_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromString(symbol));
  steps.emplace_back(Replace{std::move(space), symbol});
  if (where.has_value()) steps.emplace_back(PrependOnce{symbol, *where});
  if (splits) steps.emplace_back(Cut{std::move(pattern), Cut::Behavior::kMergedWithNext});
  return absl::OkStatus();
}

absl::Status AppendPreTokenizer(const JsonValue& json, std::vector<PreTokenizerStep>& steps) {
  LK_RETURN_IF_ERROR(CheckSteps(json, steps.size()));
  LK_ASSIGN_OR_RETURN(const JsonValue type, json.Get("type"));
  const nlohmann::json& name = type.get();
  if (name == "Split") return AppendSplit(json, steps);
  if (name == "Digits") return AppendDigits(json, steps);
  if (name == "ByteLevel") return AppendByteLevel(json, steps);
  if (name == "Metaspace") return AppendMetaspace(json, steps);
  if (name != "Sequence") return type.Unsupported();
  LK_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, json.Items("pretokenizers"));
  for (const JsonValue& item : items) LK_RETURN_IF_ERROR(AppendPreTokenizer(item, steps));
  return absl::OkStatus();
}

// Reads decoders in order.
class DecoderReader {
 public:
  absl::Status Append(const JsonValue& json) {
    LK_ASSIGN_OR_RETURN(const JsonValue type, json.Get("type"));
    const nlohmann::json& name = type.get();
    // The next decoder would see bytes and not pieces.
    if (decoder_.unspells) return type.Unsupported();
    if (name == "Sequence") return AppendSequence(json);
    if (name == "ByteLevel" && is_empty_) {
      decoder_.unspells = true;
      decoder_.rules.broken_utf8 = DecodeRules::BrokenUtf8::kSequence;
      return absl::OkStatus();
    }
    is_empty_ = false;
    if (name == "Fuse") {
      is_fused_ = true;
      return absl::OkStatus();
    }
    if (name == "Strip" && is_fused_) return AppendStrip(json);
    if (is_fused_) return type.Unsupported();
    if (name == "ByteFallback") {
      decoder_.reads_bytes = true;
      return absl::OkStatus();
    }
    if (name == "Replace" && !decoder_.reads_bytes) return AppendReplace(json);
    if (name == "Metaspace" && !decoder_.reads_bytes) return AppendMetaspace(json);
    return type.Unsupported();
  }

  BpeDecoder Take() { return std::move(decoder_); }

 private:
  absl::Status AppendSequence(const JsonValue& json) {
    LK_ASSIGN_OR_RETURN(const std::vector<JsonValue> items, json.Items("decoders"));
    for (const JsonValue& item : items) LK_RETURN_IF_ERROR(Append(item));
    return absl::OkStatus();
  }

  absl::Status AppendReplace(const JsonValue& json) {
    LK_ASSIGN_OR_RETURN(const JsonValue pattern, json.Get("pattern"));
    const std::optional<JsonValue> from = pattern.Find("String");
    if (!from.has_value()) return pattern.Unsupported();
    LK_ASSIGN_OR_RETURN(std::string text, from->Text());
    if (text.empty()) return from->Error("a string to replace");
    LK_ASSIGN_OR_RETURN(std::string content, json.Text("content"));
    return AddReplacement(json, std::move(text), std::move(content));
  }

  absl::Status AppendMetaspace(const JsonValue& json) {
    LK_ASSIGN_OR_RETURN(std::string symbol, MetaspaceSymbol(json));
    LK_ASSIGN_OR_RETURN(const std::optional<PrependOnce::Where> where, MetaspacePrepends(json));
    if (where.has_value()) {
      decoder_.rules.leading_space = DecodeRules::LeadingSpace::kAllOfFirstPiece;
    }
    return AddReplacement(json, std::move(symbol), " ");
  }

  absl::Status AddReplacement(const JsonValue& json, std::string from, std::string to) {
    // Longer replacements could make pieces grow without bound.
    if (to.size() > from.size()) return json.Unsupported();
    decoder_.replacements.emplace_back(std::move(from), std::move(to));
    return CheckSteps(json, decoder_.replacements.size());
  }

  absl::Status AppendStrip(const JsonValue& json) {
    LK_ASSIGN_OR_RETURN(const JsonValue content, json.Get("content"));
    LK_ASSIGN_OR_RETURN(const JsonValue start, json.Get("start"));
    LK_ASSIGN_OR_RETURN(const JsonValue stop, json.Get("stop"));
    if (content.get() != " ") return content.Unsupported();
    if (start.get() != 0 && start.get() != 1) return start.Unsupported();
    if (stop.get() != 0) return stop.Unsupported();
    if (start.get() == 0) return absl::OkStatus();
    if (decoder_.rules.leading_space != DecodeRules::LeadingSpace::kKept) return json.Unsupported();
    decoder_.rules.leading_space = DecodeRules::LeadingSpace::kOne;
    return absl::OkStatus();
  }

  BpeDecoder decoder_;
  bool is_empty_ = true;
  bool is_fused_ = false;
};

}  // namespace

absl::StatusOr<std::vector<RewriteStep>> ParseNormalizer(const JsonValue& json) {
  std::vector<RewriteStep> steps;
  const std::optional<JsonValue> normalizer = json.Find("normalizer");
  if (!normalizer.has_value()) return steps;
  LK_RETURN_IF_ERROR(AppendNormalizer(*normalizer, steps));
  LK_RETURN_IF_ERROR(CheckSteps(*normalizer, steps.size()));
  return steps;
}

absl::StatusOr<std::vector<PreTokenizerStep>> ParsePreTokenizer(const JsonValue& json) {
  std::vector<PreTokenizerStep> steps;
  const std::optional<JsonValue> pre_tokenizer = json.Find("pre_tokenizer");
  if (!pre_tokenizer.has_value()) return steps;
  LK_RETURN_IF_ERROR(AppendPreTokenizer(*pre_tokenizer, steps));
  LK_RETURN_IF_ERROR(CheckSteps(*pre_tokenizer, steps.size()));
  return steps;
}

absl::StatusOr<BpeDecoder> ParseDecoder(const JsonValue& json) {
  const std::optional<JsonValue> decoder = json.Find("decoder");
  if (!decoder.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat(json.path(), "decoder: missing, which is not supported"));
  }
  DecoderReader reader;
  LK_RETURN_IF_ERROR(reader.Append(*decoder));
  return reader.Take();
}

}  // namespace lowkey

#include "tools/calibration/texts.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"
#include "tokenizer/tokenizer.h"
#include "tools/calibration/sample.h"

namespace lowkey {
namespace {

// With fewer, directions that the model uses are not seen.
constexpr int64_t kFewTokens = 4000;

absl::StatusOr<std::vector<std::string>> ReadFiles(const FlagValues& flags) {
  std::vector<std::string> texts;
  for (const std::string& path : flags.positional()) {
    LK_ASSIGN_OR_RETURN(texts.emplace_back(), ReadTextFile(path, Tokenizer::kMaxTextBytes));
  }
  if (!texts.empty()) return texts;
  for (const std::string_view text : CalibrationSample()) texts.emplace_back(text);
  return texts;
}

absl::StatusOr<CalibrationTexts> Encode(const Tokenizer& tokenizer,
                                        const std::vector<std::string>& texts,
                                        int64_t piece_tokens) {
  CalibrationTexts result;
  EncodeOptions encode;
  encode.add_bos = false;
  encode.add_eos = false;
  const std::optional<int32_t> first = tokenizer.adds_bos() ? tokenizer.bos_id() : std::nullopt;
  const int64_t n_first = first.has_value() ? 1 : 0;
  for (const std::string& text : texts) {
    LK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer.Encode(text, encode));
    const auto n_tokens = static_cast<int64_t>(tokens.size());
    for (int64_t at = 0; at < n_tokens; at += piece_tokens - n_first) {
      std::vector<int32_t>& piece = result.pieces.emplace_back();
      if (first.has_value()) piece.push_back(*first);
      const int64_t end = std::min(n_tokens, at + piece_tokens - n_first);
      piece.insert(piece.end(), tokens.begin() + at, tokens.begin() + end);
      result.n_tokens += static_cast<int64_t>(piece.size());
    }
  }
  return result;
}

}  // namespace

absl::StatusOr<CalibrationTexts> ReadCalibrationTexts(const FlagValues& flags,
                                                      const OpenedModel& model,
                                                      const Checkpoint& weights) {
  int64_t piece_tokens = 0;
  LK_RETURN_IF_ERROR(flags.ReadInt("piece", {64, 1 << 20}, piece_tokens));
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, model.MakeTokenizer());
  LK_ASSIGN_OR_RETURN(const std::vector<std::string> files, ReadFiles(flags));
  piece_tokens = std::min<int64_t>(piece_tokens, weights.config.context_tokens);
  if (piece_tokens < 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("a context of ", piece_tokens, " token, expected 2 or more to calibrate"));
  }
  LK_ASSIGN_OR_RETURN(CalibrationTexts texts, Encode(*tokenizer, files, piece_tokens));
  if (texts.n_tokens == 0) {
    return absl::InvalidArgumentError("texts: 0 tokens, expected at least 1");
  }
  if (texts.n_tokens < kFewTokens) {
    std::fprintf(stderr, "warning: %s tokens; %s or more of several kinds give a better result\n",
                 CountText(texts.n_tokens).c_str(), CountText(kFewTokens).c_str());
  }
  return texts;
}

CalibrationProgress CalibrationBars::Callbacks() {
  return {[this](int64_t done, int64_t all) { Show("loading", "", done, all); },
          [this](int64_t done, int64_t all) { Show("reading", "tokens", done, all); },
          [this](int64_t done, int64_t all) { Show("solving", solved_, done, all); }};
}

void CalibrationBars::Show(const std::string& name, const std::string& unit, int64_t done,
                           int64_t all) {
  if (name != name_) {
    bar_.reset();
    bar_ = unit.empty() ? std::make_unique<ProgressBar>(stderr, name)
                        : std::make_unique<ProgressBar>(stderr, name, unit);
    name_ = name;
  }
  bar_->Show(done, all);
}

}  // namespace lowkey

// Implements `lowkey calibrate`: finds the codes of a model's prefixes.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/calibration/find_codes.h"
#include "engine/runtime/calibration/principal_code_file.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/terminal.h"
#include "server/config/token_text.h"
#include "tokenizer/tokenizer.h"
#include "tools/calibration/code_table.h"
#include "tools/calibration/sample.h"
#include "tools/commands.h"

namespace lowkey {
namespace {

constexpr Flag kCalibrateFlags[] = {
    {"output", "FILE", "", "write here [principal.safetensors beside the model]"},
    {"piece", "N", "2048", "tokens that are read together; texts are cut into pieces"},
};
// With fewer, directions that the model uses are not seen.
constexpr int64_t kFewTokens = 4000;

using Texts = std::vector<std::vector<int32_t>>;

absl::StatusOr<std::vector<std::string>> ReadTexts(const FlagValues& flags) {
  std::vector<std::string> texts;
  for (const std::string& path : flags.positional()) {
    LK_ASSIGN_OR_RETURN(texts.emplace_back(), ReadTextFile(path, Tokenizer::kMaxTextBytes));
  }
  if (!texts.empty()) return texts;
  for (const std::string_view text : CalibrationSample()) texts.emplace_back(text);
  return texts;
}

// Cuts texts into pieces of at most piece_tokens, each of which begins as a text does.
absl::StatusOr<Texts> Encode(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                             int64_t piece_tokens) {
  Texts pieces;
  EncodeOptions encode;
  encode.add_bos = false;
  encode.add_eos = false;
  const std::optional<int32_t> first = tokenizer.adds_bos() ? tokenizer.bos_id() : std::nullopt;
  const int64_t n_first = first.has_value() ? 1 : 0;
  for (const std::string& text : texts) {
    LK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer.Encode(text, encode));
    const auto n_tokens = static_cast<int64_t>(tokens.size());
    for (int64_t at = 0; at < n_tokens; at += piece_tokens - n_first) {
      std::vector<int32_t>& piece = pieces.emplace_back();
      if (first.has_value()) piece.push_back(*first);
      const int64_t end = std::min(n_tokens, at + piece_tokens - n_first);
      piece.insert(piece.end(), tokens.begin() + at, tokens.begin() + end);
    }
  }
  return pieces;
}

// One bar at a time: the next one begins where the one before has ended.
class Bars {
 public:
  CodeProgress Callbacks() {
    return {[this](int64_t done, int64_t all) { Show("loading", "", done, all); },
            [this](int64_t done, int64_t all) { Show("reading", "tokens", done, all); },
            [this](int64_t done, int64_t all) { Show("solving", "codes", done, all); }};
  }

 private:
  void Show(const std::string& name, const std::string& unit, int64_t done, int64_t all) {
    if (name != name_) {
      bar_.reset();
      bar_ = unit.empty() ? std::make_unique<ProgressBar>(stderr, name)
                          : std::make_unique<ProgressBar>(stderr, name, unit);
      name_ = name;
    }
    bar_->Show(done, all);
  }

  std::string name_;
  std::unique_ptr<ProgressBar> bar_;
};

absl::Status RunCalibrate(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(const EngineOptions engine, ReadEngineOptions(flags));
  if (engine.device != nullptr) return flags.Error("device", "cpu");
  int64_t piece_tokens = 0;
  LK_RETURN_IF_ERROR(flags.ReadInt("piece", {64, 1 << 20}, piece_tokens));
  LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, model.MakeTokenizer());
  LK_ASSIGN_OR_RETURN(const auto weights, model.Weights());
  piece_tokens = std::min<int64_t>(piece_tokens, weights->config.context_tokens);
  LK_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadTexts(flags));
  LK_ASSIGN_OR_RETURN(const Texts pieces, Encode(*tokenizer, texts, piece_tokens));
  int64_t n_tokens = 0;
  for (const auto& piece : pieces) n_tokens += static_cast<int64_t>(piece.size());
  if (n_tokens < kFewTokens) {
    std::fprintf(stderr, "warning: %s tokens; %s or more of several kinds give a better code\n",
                 CountText(n_tokens).c_str(), CountText(kFewTokens).c_str());
  }
  const std::string path =
      flags.IsGiven("output") ? flags.Text("output") : PrincipalCodePath(model.path());
  auto bars = std::make_unique<Bars>();
  LK_ASSIGN_OR_RETURN(const PrincipalCodes codes,
                      FindPrincipalCodes(weights, pieces, engine, bars->Callbacks()));
  bars.reset();
  LK_RETURN_IF_ERROR(WritePrincipalCodes(path, codes, WeightsFingerprint(*weights)));
  if (flags.Switch("json")) {
    const nlohmann::ordered_json json = {{"output", path},
                                         {"tokens", n_tokens},
                                         {"basis_bytes", codes.size_bytes()},
                                         {"curve", CodeCurveJson(codes.prefixes)}};
    std::printf("%s\n", JsonLine(json).c_str());
    return absl::OkStatus();
  }
  std::fprintf(stderr, "%s: bases of %s from %s tokens\n", path.c_str(),
               BytesText(codes.size_bytes()).c_str(), CountText(n_tokens).c_str());
  PrintCodeCurve(codes.prefixes);
  return absl::OkStatus();
}

}  // namespace

Command CalibrateCommand() {
  Command command("calibrate",
                  "find the principal keys and values of a model, for codes and indices",
                  RunCalibrate);
  command.spec.positional = "[FILE...]";
  command.spec.description =
      "Reads texts through a model and finds, for each layer, the principal components of its keys "
      "and values: what --prefix-storage calibrated codes stored prompts with, and what atp "
      "--basis "
      "calibrated finds older tokens by. "
      "Without FILE a built-in sample of many kinds of text is read; your own texts should be of "
      "many kinds too (- is standard input). The table shows what a token of a prefix takes, and "
      "the share of the variance that the code loses.";
  command.spec.groups = {{"Calibration", kCalibrateFlags},
                         {"Model", ModelFlags()},
                         {"Engine", EngineFlags()},
                         {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey calibrate --model ~/models/llama",
      "lowkey calibrate --model ~/models/chat.gguf --output chat.safetensors",
      "lowkey calibrate --model ~/models/llama story.txt manual.md program.cc",
  };
  return command;
}

}  // namespace lowkey

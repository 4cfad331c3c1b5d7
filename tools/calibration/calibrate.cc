// Implements `lowkey calibrate`: finds bases for stored prefixes and for atp's index of a model.
#include <cstdio>
#include <memory>
#include <string>

#include "engine/base/status_macros.h"
#include "engine/runtime/calibration/find_codes.h"
#include "engine/runtime/calibration/principal_code_file.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"
#include "tools/calibration/code_table.h"
#include "tools/calibration/texts.h"
#include "tools/commands.h"

namespace lowkey {
namespace {

constexpr Flag kCalibrateFlags[] = {
    {"output", "FILE", "", "write here [principal.safetensors beside the model]"},
    kPieceFlag,
};

absl::Status RunCalibrate(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(const EngineOptions engine, ReadEngineOptions(flags));
  if (engine.device != nullptr) return flags.Error("device", "cpu");
  LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
  const std::string path =
      flags.IsGiven("output") ? flags.Text("output") : PrincipalCodePath(model.files().weights);
  LK_RETURN_IF_ERROR(CheckReplaceable(path));
  LK_ASSIGN_OR_RETURN(const auto weights, model.Weights());
  LK_ASSIGN_OR_RETURN(const CalibrationTexts texts, ReadCalibrationTexts(flags, model, *weights));
  auto bars = std::make_unique<CalibrationBars>("codes");
  LK_ASSIGN_OR_RETURN(const PrincipalCodes codes,
                      FindPrincipalCodes(weights, texts.pieces, engine, bars->Callbacks()));
  bars.reset();
  LK_RETURN_IF_ERROR(WritePrincipalCodes(path, codes, WeightsFingerprint(*weights)));
  if (flags.Switch("json")) {
    const nlohmann::ordered_json json = {{"output", path},
                                         {"tokens", texts.n_tokens},
                                         {"basis_bytes", codes.size_bytes()},
                                         {"curve", CodeCurveJson(codes.prefixes)}};
    std::printf("%s\n", JsonLine(json).c_str());
    return absl::OkStatus();
  }
  std::fprintf(stderr, "%s: bases of %s from %s tokens\n", path.c_str(),
               BytesText(codes.size_bytes()).c_str(), CountText(texts.n_tokens).c_str());
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

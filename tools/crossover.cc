// lowkey crossover: measures what each mechanism costs on this machine, by length.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/report/page.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/kernels.h"
#include "engine/runtime/measure_rates.h"
#include "server/config/calibration_flags.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/opened_model.h"
#include "server/config/profile.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"
#include "tools/commands.h"
#include "tools/crossover_report.h"
#include "tools/crossover_theory.h"

namespace lowkey {
namespace {

constexpr Flag kCrossoverFlags[] = {
    {"theory", "", "", "print the papers' formulas, for --model too; measure nothing",
     FlagKind::kSwitch},
    {"lengths", "N,...", "512,1024,2048,4096", "tokens to measure at"},
    {"try", "OPTIONS", "",
     "measure this mechanism, such as \"atp --rank 16\"; without it: all that the model has",
     FlagKind::kRepeated},
    {"output", "FILE", "", "write the rates for lowkey serve --profile"},
    {"html", "FILE", "", "write a page with plots"},
};

absl::StatusOr<std::vector<int64_t>> ReadLengths(const FlagValues& flags) {
  std::vector<int64_t> lengths;
  for (const auto part : absl::StrSplit(flags.Text("lengths"), ',')) {
    if (!absl::SimpleAtoi(part, &lengths.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("--lengths: \"", std::string(part),
                                                     "\", expected numbers such as 512,1024"));
    }
  }
  return lengths;
}

absl::StatusOr<AttentionOptions> ParseTried(const std::string& text) {
  LK_ASSIGN_OR_RETURN(
      const AttentionChoice choice,
      ParseAttention(absl::StrSplit(text, ' ', absl::SkipWhitespace()), NamedAttentionFlags()));
  return ResolveAttention(choice, {});
}

absl::StatusOr<std::vector<AttentionOptions>> ReadMechanisms(const FlagValues& flags) {
  std::vector<AttentionOptions> mechanisms;
  for (const std::string& text : flags.Texts("try")) {
    LK_ASSIGN_OR_RETURN(mechanisms.emplace_back(),
                        Prefixed(absl::StrCat("--try \"", text, "\""), ParseTried(text)));
  }
  if (!mechanisms.empty()) return mechanisms;
  for (Mechanism id : AllMechanisms()) {
    mechanisms.emplace_back().mechanism = id;
  }
  return mechanisms;
}

absl::Status PrintTheory(const FlagValues& flags) {
  std::string text = TheoryText();
  if (flags.IsGiven("model")) {
    LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
    LK_ASSIGN_OR_RETURN(const auto checkpoint, model.Weights());
    const BundledMechanism* bundled = nullptr;
    for (const BundledMechanism& m : checkpoint->mechanisms) {
      if (m.mechanism == Mechanism::kTaylorShift) bundled = &m;
    }
    text += bundled == nullptr ? ModelTheoryText(checkpoint->config, 0)
                               : ModelTheoryText(bundled->config, bundled->window_tokens);
  }
  std::printf("%s", text.c_str());
  return absl::OkStatus();
}

absl::Status RunCrossover(const FlagValues& flags) {
  if (flags.Switch("theory")) {
    LK_RETURN_IF_ERROR(flags.RequireNone({"lengths", "try", "output", "html", "json"},
                                         "none beside --theory, which measures nothing"));
    return PrintTheory(flags);
  }
  RateOptions options;
  LK_ASSIGN_OR_RETURN(options.engine, ReadEngineOptions(flags));
  LK_ASSIGN_OR_RETURN(options.lengths, ReadLengths(flags));
  LK_ASSIGN_OR_RETURN(options.mechanisms, ReadMechanisms(flags));
  options.leaves_out_missing = flags.Texts("try").empty();
  LK_RETURN_IF_ERROR(CheckWritable(flags, {"output", "html"}));
  LK_ASSIGN_OR_RETURN(const std::string name, OpenedModel::Name(flags));
  LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
  LK_ASSIGN_OR_RETURN(const auto weights, model.Weights());
  LK_RETURN_IF_ERROR(ReadCalibration(flags, model, *weights, options.engine));
  const absl::StatusOr<MeasuredRates> measured = [&] {
    ProgressBar bar(stderr, "measuring");
    return MeasureRates(*weights, options,
                        [&bar](int64_t done, int64_t all) { bar.Show(done, all); });
  }();
  LK_RETURN_IF_ERROR(measured.status());
  const MeasuredRates& rates = *measured;
  if (flags.IsGiven("output")) {
    LK_RETURN_IF_ERROR(WriteTextFile(flags.Text("output"), ProfileJson(rates.profile)));
  }
  const nlohmann::ordered_json report =
      RatesReport(rates, absl::StrCat("lowkey crossover: ", name),
                  options.engine.device == nullptr ? std::string(Kernels().name)
                                                   : options.engine.device->name());
  if (flags.IsGiven("html")) {
    LK_RETURN_IF_ERROR(WriteTextFile(flags.Text("html"), ReportPage(report)));
  }
  std::printf(
      "%s", flags.Switch("json") ? (ReportJson(report) + "\n").c_str() : RatesText(rates).c_str());
  return absl::OkStatus();
}

}  // namespace

Command CrossoverCommand() {
  Command command("crossover", "what each attention mechanism costs on this machine, by length",
                  RunCrossover);
  command.spec.description =
      "Times the attention of a model's shape (one layer of random rows, times the layers) with "
      "every mechanism that the model has, for prompts and for generated tokens, and prints where "
      "each becomes cheaper than standard. The rates it writes let a server choose (--attention "
      "auto) by what this machine does. Run it while the machine is idle.";
  command.spec.groups = {{"Measurement", kCrossoverFlags},
                         {"Model", ModelFlags()},
                         {"Engine", EngineFlags()},
                         {"Calibration of the model", CalibrationFlags()},
                         {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey crossover --theory",
      "lowkey crossover --theory --model models/smollm2",
      "lowkey crossover --model models/smollm2 --lengths 1024,2048,4096,8192 --html report.html",
      "lowkey crossover --output profile.json && lowkey serve --profile profile.json",
  };
  return command;
}

}  // namespace lowkey

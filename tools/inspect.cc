// Implements `lowkey inspect`: what a model is, what it needs, and how low-rank its inputs are.
#include "engine/runtime/inspect.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/attention/principal_codes.h"
#include "engine/base/machine.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "server/config/calibration_flags.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/layout.h"
#include "server/config/terminal/terminal.h"
#include "tokenizer/tokenizer.h"
#include "tools/calibration/code_table.h"
#include "tools/commands.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBarCells = 40;
constexpr Flag kInspectFlags[] = {
    {"prompt", "TEXT", "", "also measure how low-rank every layer's input is on this text"},
};

// Returns the options, with the scores and the window of taylorshift's weights.
std::string LabelOf(const MechanismMemory& memory) {
  std::string text = AttentionLabel(memory.attention);
  if (memory.score_dim.has_value()) absl::StrAppend(&text, " scores ", *memory.score_dim);
  if (memory.window_tokens > 0) absl::StrAppend(&text, " window ", memory.window_tokens);
  return text;
}

std::string ShapeText(const ModelConfig& config) {
  return absl::StrCat(config.n_layers, " layers, hidden ", CountText(config.hidden_dim), ", ",
                      config.n_heads, " heads of ", config.head_dim, " (", config.n_kv_heads,
                      " for keys and values), ffn ", CountText(config.ffn_dim));
}

std::string VocabularyText(const ModelConfig& config) {
  std::string text = CountText(config.vocab_size);
  if (config.bos_token.has_value()) absl::StrAppend(&text, ", bos ", *config.bos_token);
  if (!config.eos_tokens.empty()) {
    absl::StrAppend(&text, ", eos ", absl::StrJoin(config.eos_tokens, " "));
  }
  return absl::StrCat(text, config.tied_embeddings ? ", tied embeddings" : "");
}

std::string ContextText(const ModelConfig& config) {
  std::string text = absl::StrCat(CountText(config.context_tokens), " tokens");
  if (config.sliding_window.has_value()) {
    absl::StrAppend(&text, ", sliding window ", CountText(*config.sliding_window));
  }
  return text;
}

void PrintSummary(const std::string& directory, const ModelSummary& model) {
  const ModelConfig& config = model.config;
  PrintNow(AlignedRows(
      {{"model", directory},
       {"architecture", config.architecture},
       {"shape", ShapeText(config)},
       {"vocabulary", VocabularyText(config)},
       {"context", ContextText(config)},
       {"parameters", CountText(model.n_parameters)},
       {"files", absl::StrCat(BytesText(model.file_bytes), ", mostly ", model.checkpoint_dtype)},
       {"weights", absl::StrCat(BytesText(model.weight_bytes), " in memory as ", model.dtype)},
       {"cache", absl::StrCat(BytesText(model.cache_bytes), " unless told otherwise")},
       {"memory",
        absl::StrCat(BytesText(model.total_bytes), " in all, with ", BytesText(model.step_bytes),
                     " for a step; ", BytesText(AvailableMemoryBytes()), " available here")}},
      StyleOf(stdout)));
}

void PrintMechanisms(const ModelSummary& model) {
  std::vector<std::vector<std::string>> rows;
  for (const MechanismMemory& memory : model.mechanisms) {
    rows.push_back({LabelOf(memory), CountText(static_cast<int64_t>(memory.bytes_per_token + 0.5)),
                    BytesText(memory.fixed_bytes), BytesText(memory.bytes_full_context),
                    CountText(memory.n_full_sequences), memory.exact ? "exact" : "approx"});
  }
  Table table({"attention", "B/token", "fixed", "context", "fit", "output"}, 0,
              StyleOf(stdout).columns);
  for (const std::vector<std::string>& row : rows) table.Widen(row);
  PrintNow("\n");
  PrintHeader(table);
  for (const std::vector<std::string>& row : rows) PrintNow(table.Row(row));
}

void PrintRanks(const std::vector<LayerRank>& ranks, size_t n_rows) {
  const Style style = StyleOf(stdout);
  const std::string title =
      Wrapped(absl::StrCat("low-rankness of each layer's attention input over ",
                           CountText(static_cast<int64_t>(n_rows)),
                           " tokens: components needed, ceil(2^mu)"),
              0, style.columns);
  std::printf("\n%s\n", title.c_str());
  constexpr size_t kNumbers = 28;  // columns before the bar, and one after it
  const size_t n_cells = std::clamp(style.columns, kNumbers + 8, kNumbers + kBarCells) - kNumbers;
  for (const LayerRank& rank : ranks) {
    const double share = std::clamp(rank.ratio, 0.0, 1.0);
    const auto n_full = static_cast<size_t>(share * static_cast<double>(n_cells) + 0.5);
    std::string bar;
    for (size_t i = 0; i < n_cells; ++i) bar += i < n_full ? "█" : "·";
    std::printf("layer %3d  %5d  %5.1f%%  %s%s%s\n", rank.layer,
                static_cast<int>(rank.entropy_rank), rank.ratio * 100,
                std::string(style.green).c_str(), bar.c_str(), std::string(style.reset).c_str());
  }
}

Json MechanismJson(const MechanismMemory& memory) {
  Json json = {{"mechanism", std::string(MechanismName(memory.attention.mechanism))}};
  for (const AttentionOption& option : AttentionOptionTable()) {
    if (option.owner != memory.attention.mechanism) continue;
    std::visit([&](const auto& value) { json[std::string(option.name)] = value; },
               option.get(memory.attention));
  }
  if (memory.score_dim.has_value()) json["score_dim"] = *memory.score_dim;
  if (memory.window_tokens > 0) json["window_tokens"] = memory.window_tokens;
  json["bytes_per_token"] = memory.bytes_per_token;
  json["fixed_bytes"] = memory.fixed_bytes;
  json["bytes_full_context"] = memory.bytes_full_context;
  json["full_sequences_that_fit"] = memory.n_full_sequences;
  json["approximate"] = !memory.exact;
  return json;
}

Json SummaryJson(const std::string& directory, const ModelSummary& model) {
  const ModelConfig& config = model.config;
  Json json = {{"model", directory},
               {"architecture", config.architecture},
               {"vocab_size", config.vocab_size},
               {"hidden_dim", config.hidden_dim},
               {"ffn_dim", config.ffn_dim},
               {"n_layers", config.n_layers},
               {"n_heads", config.n_heads},
               {"n_kv_heads", config.n_kv_heads},
               {"head_dim", config.head_dim},
               {"context_tokens", config.context_tokens},
               {"n_parameters", model.n_parameters},
               {"file_bytes", model.file_bytes},
               {"checkpoint_dtype", model.checkpoint_dtype},
               {"weight_bytes", model.weight_bytes},
               {"dtype", model.dtype},
               {"step_bytes", model.step_bytes},
               {"cache_bytes", model.cache_bytes},
               {"total_bytes", model.total_bytes},
               {"available_bytes", AvailableMemoryBytes()}};
  json["mechanisms"] = Json::array();
  for (const MechanismMemory& memory : model.mechanisms) {
    json["mechanisms"].push_back(MechanismJson(memory));
  }
  return json;
}

struct Measured {
  size_t n_rows = 0;  // tokens measured
  std::vector<LayerRank> ranks;
};

absl::StatusOr<Measured> Measure(const std::shared_ptr<const Checkpoint>& weights,
                                 const Tokenizer& tokenizer, const std::string& prompt,
                                 const EngineOptions& options) {
  EncodeOptions encode;
  encode.add_eos = false;
  LK_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.Encode(prompt, encode));
  // Only the first hidden_dim tokens are measured, and no token depends on later ones.
  const int64_t most =
      std::min<int64_t>(weights->config.hidden_dim, weights->config.context_tokens);
  tokens.resize(std::min(tokens.size(), static_cast<size_t>(most)));
  Measured measured;
  measured.n_rows = tokens.size();
  LK_ASSIGN_OR_RETURN(measured.ranks, MeasureLowRankness(weights, tokens, options));
  return measured;
}

void PrintCalibration(const PrincipalCodes& codes) {
  std::printf("\nprefixes in the calibrated code; all bases take %s\n",
              BytesText(codes.size_bytes()).c_str());
  PrintCodeCurve(codes.prefixes);
}

void PrintJson(const std::string& directory, const ModelSummary& model, const Measured& measured,
               const PrincipalCodes* codes) {
  Json json = SummaryJson(directory, model);
  if (codes != nullptr) {
    json["calibration"] = {{"basis_bytes", codes->size_bytes()},
                           {"curve", CodeCurveJson(codes->prefixes)}};
  }
  if (!measured.ranks.empty()) json["low_rankness_tokens"] = measured.n_rows;
  for (const LayerRank& rank : measured.ranks) {
    json["low_rankness"].push_back(
        {{"layer", rank.layer}, {"entropy_rank", rank.entropy_rank}, {"ratio", rank.ratio}});
  }
  std::printf("%s\n", JsonLine(json).c_str());
}

absl::Status RunInspect(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(EngineOptions options, ReadEngineOptions(flags));
  LK_ASSIGN_OR_RETURN(const OpenedModel opened, OpenedModel::Open(flags));
  LK_ASSIGN_OR_RETURN(const auto weights, opened.Weights());
  LK_RETURN_IF_ERROR(ReadCalibration(flags, opened, *weights, options));
  const PrincipalCodes* codes = options.codes.get();
  LK_ASSIGN_OR_RETURN(const ModelSummary model, SummarizeModel(*weights, options));
  std::string prompt = flags.Text("prompt");
  if (!flags.positional().empty()) {
    LK_ASSIGN_OR_RETURN(prompt, TextArgument(flags, Tokenizer::kMaxTextBytes));
  }
  Measured measured;
  if (!prompt.empty()) {
    LK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, opened.MakeTokenizer());
    LK_ASSIGN_OR_RETURN(measured, Measure(weights, *tokenizer, prompt, options));
  }
  if (flags.Switch("json")) {
    PrintJson(opened.path(), model, measured, codes);
    return absl::OkStatus();
  }
  PrintSummary(opened.path(), model);
  PrintMechanisms(model);
  if (codes != nullptr) PrintCalibration(*codes);
  if (!measured.ranks.empty()) PrintRanks(measured.ranks, measured.n_rows);
  return absl::OkStatus();
}

}  // namespace

Command InspectCommand() {
  Command command("inspect",
                  "a model's shape, memory and mechanisms, and how low-rank its inputs are",
                  RunInspect);
  command.spec.positional = "[TEXT]";
  command.spec.description =
      "Prints what a model is, and for each attention mechanism the bytes that a token takes in "
      "the cache, the bytes that a sequence takes beside them, the bytes of a sequence as long as "
      "the context, and how many of those the cache holds at once. With TEXT (or --prompt; - is "
      "standard input) also how many components carry every layer's input: what low-rank "
      "attention lives on.";
  command.spec.groups = {{"Model", ModelFlags()},
                         {"Measurement", kInspectFlags},
                         {"Engine", EngineFlags()},
                         {"Calibration of the model", CalibrationFlags()},
                         {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey inspect",
      "lowkey inspect --model ~/models/llama --json",
      "lowkey inspect - < story.txt",
  };
  return command;
}

}  // namespace lowkey

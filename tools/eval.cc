// Implements `lowkey eval`: how well a model predicts a text, by mechanism and context length.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/loader/bundle_quality.h"
#include "server/config/calibration_flags.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/layout.h"
#include "server/config/terminal/terminal.h"
#include "server/config/token_text.h"
#include "tokenizer/tokenizer.h"
#include "tools/commands.h"
#include "tools/perplexity.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

constexpr Flag kEvalFlags[] = {
    {"context", "N,...", "2048", "tokens in a window; several lengths are measured one by one"},
    {"stride", "N", "0", "each window scores its last N tokens; 0: half of the context"},
    {"windows", "N", "0", "at most so many windows; 0: as many as the text holds"},
    {"try", "ATTENTION", "",
     "measure this too, such as \"atp --rank 16 --basis kv\"; the first is the reference",
     FlagKind::kRepeated},
    {"csv", "FILE", "", "write the table to FILE as well"},
    {"record", "", "",
     "write ratios to standard into the model's lowkey.json, for --attention auto",
     FlagKind::kSwitch},
};

struct Trial {
  std::string name;
  AttentionOptions attention;
};

struct Row {
  int64_t context_tokens = 0, stride_tokens = 0;
  Trial trial;
  PerplexityResult result;
  double ratio = 1;  // perplexity over the first trial's at the same context
};

// Unless told otherwise, atp compresses the text itself: with exact prefill no token of it would
// be read from principal keys.
absl::StatusOr<Trial> MakeTrial(AttentionChoice choice) {
  const bool is_atp = choice.mechanism.value_or("standard") == "atp";
  if (is_atp) choice.options.try_emplace("prefill", "compressed");
  LK_ASSIGN_OR_RETURN(const AttentionOptions attention, ResolveAttention(choice, {}));
  return Trial{AttentionLabel(attention), attention};
}

absl::StatusOr<std::vector<Trial>> ReadTrials(const FlagValues& flags) {
  std::vector<Trial> trials;
  for (const std::string& text : flags.Texts("try")) {
    const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipWhitespace());
    LK_ASSIGN_OR_RETURN(const AttentionChoice choice, ParseAttention(words));
    LK_ASSIGN_OR_RETURN(trials.emplace_back(), MakeTrial(choice));
  }
  if (trials.empty()) {
    LK_ASSIGN_OR_RETURN(const AttentionChoice choice, ReadAttention(flags));
    LK_ASSIGN_OR_RETURN(trials.emplace_back(), MakeTrial(choice));
  }
  return trials;
}

absl::StatusOr<std::vector<int64_t>> ReadContexts(const FlagValues& flags) {
  std::vector<int64_t> contexts;
  for (const absl::string_view part : absl::StrSplit(flags.Text("context"), ',')) {
    int64_t n = 0;
    if (!absl::SimpleAtoi(part, &n) || n < 2) {
      return flags.Error("context", "numbers of tokens, 2 or more, separated by commas");
    }
    contexts.push_back(n);
  }
  return contexts;
}

std::string ShareText(int64_t part, int64_t whole) {
  if (whole <= 0) return "-";
  return absl::StrFormat("%.3f", static_cast<double>(part) / static_cast<double>(whole));
}

Table MakeTable(const std::vector<Trial>& trials) {
  size_t name_width = 0;
  for (const Trial& trial : trials) name_width = std::max(name_width, trial.name.size());
  Table table({"attention", "context", "windows", "tokens", "perplexity", "to first", "cache",
               "share", "tokens/s"},
              name_width, StyleOf(stdout).columns);
  table.Widen(
      {"", "131,072", "", "100,000", "1,000.0000", "1.0000", "100.0 MiB", "0.000", "100,000"});
  return table;
}

void PrintRow(const Table& table, const Row& row) {
  const PerplexityResult& r = row.result;
  const double rate = static_cast<double>(r.n_windows * row.context_tokens) / r.seconds;
  const std::string line = table.Row(
      {row.trial.name, CountText(row.context_tokens), CountText(r.n_windows), CountText(r.n_scored),
       absl::StrFormat("%.4f", r.perplexity()), absl::StrFormat("%.4f", row.ratio),
       BytesText(r.cache_bytes), ShareText(r.cache_bytes, r.standard_bytes),
       CountText(static_cast<int64_t>(rate + 0.5))});
  PrintNow(line);
}

Json RowJson(const Row& row) {
  const PerplexityResult& r = row.result;
  return {{"context_tokens", row.context_tokens},
          {"stride_tokens", row.stride_tokens},
          {"attention", row.trial.name},
          {"rank", r.rank},
          {"windows", r.n_windows},
          {"tokens", r.n_scored},
          {"perplexity", r.perplexity()},
          {"ratio_to_first", row.ratio},
          {"cache_bytes", r.cache_bytes},
          {"standard_cache_bytes", r.standard_bytes},
          {"seconds", r.seconds}};
}

absl::Status WriteCsv(const std::string& path, const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    const Json json = RowJson(row);
    std::vector<std::string> names, values;
    for (const auto& [name, value] : json.items()) {
      names.push_back(name);
      values.push_back(value.is_string() ? value.get<std::string>() : value.dump());
    }
    if (text.empty()) absl::StrAppend(&text, absl::StrJoin(names, ","), "\n");
    absl::StrAppend(&text, absl::StrJoin(values, ","), "\n");
  }
  return WriteTextFile(path, text);
}

absl::StatusOr<Row> Measure(Engine& engine, absl::Span<const int32_t> tokens, const Trial& trial,
                            const PerplexityOptions& options) {
  Row row{options.context_tokens, options.stride_tokens, trial, {}, 1};
  PerplexityOptions with_attention = options;
  with_attention.attention = trial.attention;
  ProgressBar bar(stderr, trial.name, "windows");
  LK_ASSIGN_OR_RETURN(row.result,
                      MeasurePerplexity(engine, tokens, with_attention,
                                        [&](int64_t done, int64_t all) { bar.Show(done, all); }));
  return row;
}

struct Evaluation {
  std::vector<int64_t> contexts;
  std::vector<Trial> trials;
  PerplexityOptions options;
  bool is_json = false;
};

// Says why where windows of so many tokens are too long for the trial's mechanism.
bool Fits(const Engine& engine, const Trial& trial, int64_t context_tokens) {
  for (const MechanismInfo& info : engine.mechanisms()) {
    if (info.id != trial.attention.mechanism) continue;
    if (context_tokens <= info.max_tokens.value_or(context_tokens)) return true;
    std::fprintf(stderr, "%s: not measured at %s tokens, more than its %s\n", trial.name.c_str(),
                 CountText(context_tokens).c_str(), CountText(*info.max_tokens).c_str());
    return false;
  }
  return true;  // the engine says what is missing
}

absl::StatusOr<std::vector<Row>> MeasureAll(Engine& engine, absl::Span<const int32_t> tokens,
                                            const Evaluation& evaluation) {
  const Table table = MakeTable(evaluation.trials);
  std::vector<Row> rows;
  if (!evaluation.is_json) PrintHeader(table);
  for (const int64_t context : evaluation.contexts) {
    PerplexityOptions options = evaluation.options;
    options.context_tokens = context;
    if (options.stride_tokens == 0) options.stride_tokens = context / 2;
    const size_t first = rows.size();
    for (const Trial& trial : evaluation.trials) {
      if (!Fits(engine, trial, context)) continue;
      LK_ASSIGN_OR_RETURN(rows.emplace_back(), Measure(engine, tokens, trial, options));
      rows.back().ratio = rows.back().result.perplexity() / rows[first].result.perplexity();
      if (!evaluation.is_json) PrintRow(table, rows.back());
    }
  }
  return rows;
}

absl::StatusOr<Evaluation> ReadEvaluation(const FlagValues& flags) {
  Evaluation evaluation;
  LK_ASSIGN_OR_RETURN(evaluation.contexts, ReadContexts(flags));
  LK_ASSIGN_OR_RETURN(evaluation.trials, ReadTrials(flags));
  LK_RETURN_IF_ERROR(flags.ReadInt("stride", {0, 1 << 24}, evaluation.options.stride_tokens));
  LK_RETURN_IF_ERROR(flags.ReadInt("windows", {0, 1 << 24}, evaluation.options.max_windows));
  if (evaluation.options.max_windows == 0) evaluation.options.max_windows.reset();
  evaluation.is_json = flags.Switch("json");
  return evaluation;
}

// The measured ratios to the first trial, which must be exact standard attention. Compressed
// prefill counts for exact prefill too: fewer rows read compressed blocks there.
absl::Status Record(const std::string& model_path, const std::vector<Row>& rows) {
  std::vector<MeasuredQuality> measured;
  for (const Row& row : rows) {
    if (row.trial.name == rows[0].trial.name) continue;
    MeasuredQuality& m = measured.emplace_back();
    m.options = row.trial.attention;
    m.options.atp.prefill = AtpOptions().prefill;
    m.ratios = PerplexityRatios({{row.context_tokens, row.ratio}});
  }
  const bool is_file = !std::filesystem::is_directory(model_path);
  return RecordQuality(
      is_file ? std::filesystem::path(model_path).parent_path().string() : model_path, measured);
}

absl::Status CheckRecord(const FlagValues& flags, const Evaluation& evaluation) {
  if (!flags.Switch("record")) return absl::OkStatus();
  if (AttentionLabel(evaluation.trials[0].attention) != AttentionLabel({})) {
    return flags.Error("record", "the first --try to be standard, which ratios are to");
  }
  if (flags.Text("model").empty() || !std::filesystem::exists(flags.Text("model"))) {
    return flags.Error("record", "--model with the path of a model on this machine");
  }
  return absl::OkStatus();
}

absl::Status RunEval(const FlagValues& flags) {
  const std::vector<std::string>& words = flags.positional();
  if (words.size() != 2 || words[0] != "perplexity") {
    return absl::InvalidArgumentError(
        "expected: lowkey eval perplexity FILE (- is standard input)");
  }
  LK_ASSIGN_OR_RETURN(Evaluation evaluation, ReadEvaluation(flags));
  LK_RETURN_IF_ERROR(CheckRecord(flags, evaluation));
  LK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(words[1], Tokenizer::kMaxTextBytes));
  LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, model.MakeTokenizer());
  EncodeOptions encode;
  encode.add_bos = false;
  encode.add_eos = false;
  LK_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, tokenizer->Encode(text, encode));
  if (tokenizer->adds_bos()) evaluation.options.first_token = tokenizer->bos_id();
  LK_ASSIGN_OR_RETURN(EngineOptions engine_options, ReadEngineOptions(flags));
  LK_ASSIGN_OR_RETURN(auto weights, model.Weights());
  LK_RETURN_IF_ERROR(ReadCalibration(flags, model, *weights, engine_options));
  std::unique_ptr<Engine> engine;
  {
    ProgressBar bar(stderr, "loading");
    LK_ASSIGN_OR_RETURN(engine,
                        CreateEngine(std::move(weights), engine_options,
                                     [&](int64_t done, int64_t all) { bar.Show(done, all); }));
  }
  LK_ASSIGN_OR_RETURN(const std::vector<Row> rows, MeasureAll(*engine, tokens, evaluation));
  if (flags.IsGiven("csv")) LK_RETURN_IF_ERROR(WriteCsv(flags.Text("csv"), rows));
  if (flags.Switch("record")) LK_RETURN_IF_ERROR(Record(flags.Text("model"), rows));
  if (!evaluation.is_json) return absl::OkStatus();
  Json json = {
      {"model", model.path()}, {"dtype", engine->Stats().dtype}, {"text_tokens", tokens.size()}};
  for (const Row& row : rows) json["results"].push_back(RowJson(row));
  std::printf("%s\n", JsonLine(json).c_str());
  return absl::OkStatus();
}

}  // namespace

Command EvalCommand() {
  Command command("eval", "perplexity of a text, by attention mechanism and context length",
                  RunEval);
  command.spec.positional = "perplexity FILE";
  command.spec.description =
      "Cuts a text into windows of --context tokens, one every --stride tokens, scores each on its "
      "last --stride tokens, and prints exp(mean negative log-probability). Each --try is a row of "
      "the table: `cache` is what a window takes at most, `share` that of standard's, `to first` "
      "the perplexity over the first row's. atp compresses the text itself here unless --prefill "
      "exact is said. No server is needed.";
  command.spec.groups = {
      {"Evaluation", kEvalFlags},      {"Model", ModelFlags()},
      {"Engine", EngineFlags()},       {"Prefixes in a calibrated code", CalibrationFlags()},
      {"Attention", AttentionFlags()}, {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey eval perplexity book.txt",
      "lowkey eval perplexity book.txt --context 1024,2048 --try standard --try \"atp --rank 1/4\"",
      "lowkey eval perplexity book.txt --model model --record --try standard --try taylorshift",
      "lowkey eval perplexity - --model model.gguf --windows 4 --json < book.txt",
  };
  return command;
}

}  // namespace lowkey

// Implements `lowkey eval`: how well a model predicts a text, finds what stood far above, and
// answers questions, by mechanism and context length.
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/report/page.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/loader/bundle_quality.h"
#include "server/config/calibration_flags.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"
#include "tokenizer/tokenizer.h"
#include "tools/commands.h"
#include "tools/eval/choice.h"
#include "tools/eval/eval_report.h"
#include "tools/eval/eval_table.h"
#include "tools/eval/perplexity.h"
#include "tools/eval/recall.h"
#include "tools/eval/trials.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

constexpr Flag kEvalFlags[] = {
    {"context", "N,...", "",
     "tokens in a window; several lengths are measured one by one [2048; recall: 4096]"},
    {"stride", "N", "0",
     "perplexity: each window scores its last N tokens; 0: half of the context"},
    {"windows", "N", "0", "at most so many windows; 0: as many as the text holds"},
    {"codes", "N", "14", "recall: codes hidden in a window"},
    {"passage", "N", "240", "recall: tokens of the passage that comes twice"},
    {"try", "ATTENTION", "",
     "measure this too, such as \"atp --rank 16 --basis kv\"; the first is the reference",
     FlagKind::kRepeated},
    {"as-generated", "", "",
     "give the scored tokens one by one behind a prompt, as if the model had written them",
     FlagKind::kSwitch},
    {"csv", "FILE", "", "write the table to FILE as well"},
    {"html", "FILE", "", "write a page with plots of quality against cache, time and context"},
    {"record", "", "",
     "write what was measured into the model's lowkey.json; --attention auto reads perplexity",
     FlagKind::kSwitch},
};

// What is read and asked, whatever the attention.
struct Evaluation {
  std::vector<int64_t> contexts;
  std::vector<Trial> trials;
  PerplexityOptions perplexity;
  RecallOptions recall;
  std::vector<int32_t> tokens;  // of the text
  std::vector<Question> questions;
  std::unique_ptr<Tokenizer> tokenizer;
  bool as_generated = false;
  bool is_json = false;

  std::optional<int32_t> first_token() const {
    if (!tokenizer->adds_bos()) return std::nullopt;
    return tokenizer->bos_id();
  }
};

using Progress = absl::FunctionRef<void(int64_t done, int64_t all)>;

// A kind of evaluation.
struct EvalKind {
  std::string_view name;
  std::string_view counted;              // by the progress bar
  std::string_view default_context;      // empty: it has no windows
  std::vector<std::string_view> unused;  // flags that it does not read
  std::vector<QualityMeasure> measures;
  EvalRow (*widest)();  // with every number as wide as may be
  absl::StatusOr<EvalRow> (*measure)(Engine& engine, const Evaluation& evaluation,
                                     const AttentionOptions& attention, int64_t context_tokens,
                                     Progress progress);
  // Takes what lowkey.json keeps of a row.
  void (*record)(const EvalRow& row, MeasuredQuality& measured);
};

EvalRow PerplexityRow(int64_t context_tokens, int64_t stride_tokens, const PerplexityResult& r) {
  EvalRow row;
  row.context_tokens = context_tokens;
  row.cells = {CountCell("context_tokens", context_tokens, "context"),
               CountCell("stride_tokens", stride_tokens),
               CountCell("windows", r.n_windows, "windows"),
               CountCell("tokens", r.n_scored, "tokens"),
               NumberCell("perplexity", r.perplexity(), "perplexity", 4)};
  row.cost = r.cost;
  row.perplexity = r.perplexity();
  return row;
}

absl::StatusOr<EvalRow> MeasurePerplexityRow(Engine& engine, const Evaluation& evaluation,
                                             const AttentionOptions& attention,
                                             int64_t context_tokens, Progress progress) {
  PerplexityOptions options = evaluation.perplexity;
  options.context_tokens = context_tokens;
  if (options.stride_tokens == 0) options.stride_tokens = context_tokens / 2;
  options.first_token = evaluation.first_token();
  options.reading = {attention, evaluation.as_generated};
  LK_ASSIGN_OR_RETURN(const PerplexityResult result,
                      MeasurePerplexity(engine, evaluation.tokens, options, progress));
  return PerplexityRow(context_tokens, options.stride_tokens, result);
}

double Share(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

EvalRow RecallRow(int64_t context_tokens, const RecallResult& r) {
  EvalRow row;
  row.context_tokens = context_tokens;
  row.cells = {
      CountCell("context_tokens", context_tokens, "context"),
      CountCell("texts", r.n_texts, "texts"),
      CountCell("codes", r.n_codes, "codes"),
      NumberCell("codes_right", Share(r.n_codes_right, r.n_codes), "whole", 3),
      CountCell("code_tokens", r.n_code_tokens),
      NumberCell("code_tokens_right", Share(r.n_code_tokens_right, r.n_code_tokens), "digits", 3),
      NumberCell("code_tokens_loss", r.code_negative_logprob / static_cast<double>(r.n_code_tokens),
                 "loss", 3),
      CountCell("copied_tokens", r.n_copied),
      NumberCell("copied_tokens_right", Share(r.n_copied_right, r.n_copied), "copied", 3)};
  row.cost = r.cost;
  return row;
}

absl::StatusOr<EvalRow> MeasureRecallRow(Engine& engine, const Evaluation& evaluation,
                                         const AttentionOptions& attention, int64_t context_tokens,
                                         Progress progress) {
  RecallOptions options = evaluation.recall;
  options.context_tokens = context_tokens;
  options.first_token = evaluation.first_token();
  options.reading = {attention, evaluation.as_generated};
  LK_ASSIGN_OR_RETURN(
      const RecallResult result,
      MeasureRecall(engine, *evaluation.tokenizer, evaluation.tokens, options, progress));
  return RecallRow(context_tokens, result);
}

EvalRow ChoiceRow(const ChoiceResult& r) {
  EvalRow row;
  row.cells = {
      CountCell("questions", r.n_questions, "questions"),
      NumberCell("right", Share(r.n_right, r.n_questions), "right", 4),
      NumberCell("right_normalized", Share(r.n_right_normalized, r.n_questions), "normalized", 4)};
  row.cost = r.cost;
  return row;
}

absl::StatusOr<EvalRow> MeasureChoiceRow(Engine& engine, const Evaluation& evaluation,
                                         const AttentionOptions& attention, int64_t,
                                         Progress progress) {
  LK_ASSIGN_OR_RETURN(
      const ChoiceResult result,
      MeasureChoices(engine, *evaluation.tokenizer, evaluation.questions, evaluation.first_token(),
                     {attention, evaluation.as_generated}, progress));
  return ChoiceRow(result);
}

double ShareOf(const EvalRow& row, std::string_view name) {
  const auto cell = std::find_if(row.cells.begin(), row.cells.end(),
                                 [&](const EvalCell& c) { return c.name == name; });
  return cell->value.get<double>();
}

constexpr int64_t kMany = 100'000;
const EvalCost kWideCost = {1, kMany, kMany << 10, kMany << 10, 0};

const EvalKind kKinds[] = {
    {"perplexity",
     "windows",
     "2048",
     {"codes", "passage"},
     {{"perplexity", "Perplexity", "perplexity", /*is_log=*/true}},
     [] {
       // exp(7) is 1,096.6.
       return PerplexityRow(kMany, 0, {1, kMany, 7.0 * kMany, kWideCost});
     },
     &MeasurePerplexityRow,
     [](const EvalRow& row, MeasuredQuality& measured) {
       measured.ratios = PerplexityRatios({{row.context_tokens, row.ratio}});
     }},
    {"recall",
     "texts",
     "4096",
     {"stride"},
     {{"code_tokens_right", "Digits of codes", "share that is right"},
      {"copied_tokens_right", "Copies", "share of tokens that is right"}},
     [] {
       return RecallRow(kMany, {1, kMany, 0, kMany, 0, 10.0 * kMany, kMany, 0, kWideCost});
     },
     &MeasureRecallRow,
     [](const EvalRow& row, MeasuredQuality& measured) {
       measured.recalled_digits = {{row.context_tokens, ShareOf(row, "code_tokens_right")}};
       measured.copied_tokens = {{row.context_tokens, ShareOf(row, "copied_tokens_right")}};
     }},
    {"choice",
     "questions",
     "",
     {"context", "stride", "windows", "codes", "passage"},
     {{"right", "Answers", "share that is right"}},
     [] {
       return ChoiceRow({kMany, 0, 0, kWideCost});
     },
     &MeasureChoiceRow,
     [](const EvalRow& row, MeasuredQuality& measured) {
       measured.right_answers = ShareOf(row, "right");
     }},
};

absl::StatusOr<std::vector<int64_t>> ReadContexts(const FlagValues& flags, const EvalKind& kind) {
  if (kind.default_context.empty()) return std::vector<int64_t>{0};
  const std::string text =
      flags.IsGiven("context") ? flags.Text("context") : std::string(kind.default_context);
  std::vector<int64_t> contexts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t n = 0;
    if (!absl::SimpleAtoi(part, &n) || n < 2) {
      return flags.Error("context", "numbers of tokens, 2 or more, separated by commas");
    }
    contexts.push_back(n);
  }
  return contexts;
}

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

// Returns what a token behind so many reads of the cache.
absl::StatusOr<int64_t> ReadBytes(const Engine& engine, const Trial& trial,
                                  int64_t context_tokens) {
  if (context_tokens == 0) return 0;
  LK_ASSIGN_OR_RETURN(const std::vector<CacheBytes> bytes,
                      engine.BytesByLength(trial.attention, {&context_tokens, 1}));
  return bytes[0].read;
}

// Puts what presets stand for on this model in their place.
void ResolveTrials(const Engine& engine, std::vector<Trial>& trials) {
  for (Trial& trial : trials) {
    trial.attention = engine.Resolve(trial.attention);
    trial.name = AttentionLabel(trial.attention);
  }
}

absl::StatusOr<std::vector<EvalRow>> MeasureAll(Engine& engine, const EvalKind& kind,
                                                const Evaluation& evaluation) {
  const auto add_ratio = [](const EvalRow& first, EvalRow& row) {
    if (!row.perplexity.has_value()) return;
    row.ratio = *row.perplexity / *first.perplexity;
    row.cells.push_back(NumberCell("ratio_to_first", row.ratio, "to first", 4));
  };
  EvalRow widest = kind.widest();
  add_ratio(widest, widest);
  const Table table = MakeEvalTable(evaluation.trials, widest);
  std::vector<EvalRow> rows;
  for (const int64_t context : evaluation.contexts) {
    const size_t first = rows.size();
    for (const Trial& trial : evaluation.trials) {
      if (!Fits(engine, trial, context)) continue;
      EvalRow row;
      {
        ProgressBar bar(stderr, trial.name, kind.counted);
        LK_ASSIGN_OR_RETURN(row,
                            kind.measure(engine, evaluation, trial.attention, context,
                                         [&](int64_t done, int64_t all) { bar.Show(done, all); }));
      }
      row.trial = trial;
      LK_ASSIGN_OR_RETURN(row.cost.read_bytes, ReadBytes(engine, trial, context));
      add_ratio(rows.size() > first ? rows[first] : row, row);
      if (!evaluation.is_json) {
        if (rows.empty()) PrintHeader(table);
        PrintNow(TableRow(table, row));
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

absl::StatusOr<Evaluation> ReadEvaluation(const FlagValues& flags, const EvalKind& kind) {
  Evaluation evaluation;
  LK_RETURN_IF_ERROR(
      flags.RequireNone(kind.unused, absl::StrCat("none with ", std::string(kind.name))));
  LK_ASSIGN_OR_RETURN(evaluation.contexts, ReadContexts(flags, kind));
  LK_ASSIGN_OR_RETURN(evaluation.trials, ReadTrials(flags));
  std::optional<int64_t>& windows = evaluation.perplexity.max_windows;
  LK_RETURN_IF_ERROR(flags.ReadInt("stride", {0, 1 << 24}, evaluation.perplexity.stride_tokens));
  for (const int64_t context : evaluation.contexts) {
    if (evaluation.perplexity.stride_tokens > context) {
      return flags.Error("stride", absl::StrCat("at most the --context of ", context));
    }
  }
  LK_RETURN_IF_ERROR(flags.ReadInt("windows", {0, 1 << 24}, windows));
  if (windows == 0) windows.reset();
  evaluation.recall.max_texts = windows;
  LK_RETURN_IF_ERROR(
      flags.ReadInt("codes", {1, RecallOptions::kMaxCodes}, evaluation.recall.n_codes));
  LK_RETURN_IF_ERROR(flags.ReadInt("passage", {RecallOptions::kCueTokens + 1, 1 << 24},
                                   evaluation.recall.passage_tokens));
  evaluation.as_generated = flags.Switch("as-generated");
  evaluation.is_json = flags.Switch("json");
  return evaluation;
}

absl::Status ReadText(const std::string& path, const EvalKind& kind, const OpenedModel& model,
                      Evaluation& evaluation) {
  LK_ASSIGN_OR_RETURN(evaluation.tokenizer, model.MakeTokenizer());
  if (kind.default_context.empty()) {
    LK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxTokenFileBytes));
    LK_ASSIGN_OR_RETURN(evaluation.questions, ParseQuestions(text, path));
    return absl::OkStatus();
  }
  LK_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, Tokenizer::kMaxTextBytes));
  EncodeOptions encode;
  encode.add_bos = false;
  encode.add_eos = false;
  LK_ASSIGN_OR_RETURN(evaluation.tokens, evaluation.tokenizer->Encode(text, encode));
  return absl::OkStatus();
}

// Perplexity's ratios are to the first trial, which must be exact standard attention and has none.
// Compressed prefill counts for exact prefill too: fewer rows read compressed blocks there.
absl::Status Record(const std::string& directory, const EvalKind& kind,
                    const std::vector<EvalRow>& rows) {
  std::vector<MeasuredQuality> measured;
  for (const EvalRow& row : rows) {
    if (row.perplexity.has_value() && row.trial.name == rows[0].trial.name) continue;
    MeasuredQuality& m = measured.emplace_back();
    m.options = row.trial.attention;
    m.options.atp.prefill = AtpOptions().prefill;
    kind.record(row, m);
  }
  return RecordQuality(directory, measured);
}

absl::Status CheckRecord(const FlagValues& flags, const EvalKind& kind,
                         const Evaluation& evaluation) {
  if (!flags.Switch("record")) return absl::OkStatus();
  if (kind.name == "perplexity" &&
      AttentionLabel(evaluation.trials[0].attention) != AttentionLabel({})) {
    return flags.Error("record", "the first --try to be standard, which ratios are to");
  }
  if (flags.Text("model").empty() || !std::filesystem::exists(flags.Text("model"))) {
    return flags.Error("record", "--model with the path of a model on this machine");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(const FlagValues& flags,
                                                   const OpenedModel& model) {
  LK_ASSIGN_OR_RETURN(EngineOptions options, ReadEngineOptions(flags));
  LK_ASSIGN_OR_RETURN(auto weights, model.Weights());
  LK_RETURN_IF_ERROR(ReadCalibration(flags, model, *weights, options));
  ProgressBar bar(stderr, "loading");
  return CreateEngine(std::move(weights), options,
                      [&](int64_t done, int64_t all) { bar.Show(done, all); });
}

absl::Status RunEval(const FlagValues& flags) {
  const std::vector<std::string>& words = flags.positional();
  const EvalKind* kind = nullptr;
  for (const EvalKind& k : kKinds) {
    if (!words.empty() && words[0] == k.name) kind = &k;
  }
  if (words.size() != 2 || kind == nullptr) {
    return absl::InvalidArgumentError(
        "expected: lowkey eval perplexity|recall|choice FILE (- is standard input)");
  }
  LK_ASSIGN_OR_RETURN(Evaluation evaluation, ReadEvaluation(flags, *kind));
  LK_RETURN_IF_ERROR(CheckRecord(flags, *kind, evaluation));
  LK_RETURN_IF_ERROR(CheckWritable(flags, {"csv", "html"}));
  LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
  LK_RETURN_IF_ERROR(ReadText(words[1], *kind, model, evaluation));
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(flags, model));
  ResolveTrials(*engine, evaluation.trials);
  LK_ASSIGN_OR_RETURN(const std::vector<EvalRow> rows, MeasureAll(*engine, *kind, evaluation));
  if (flags.IsGiven("csv")) LK_RETURN_IF_ERROR(WriteCsv(flags.Text("csv"), rows));
  if (flags.IsGiven("html")) {
    const Json report = EvalReport(absl::StrCat("lowkey eval ", words[0], ": ", model.path()),
                                   kind->measures, rows);
    LK_RETURN_IF_ERROR(WriteTextFile(flags.Text("html"), ReportPage(report)));
  }
  if (flags.Switch("record")) LK_RETURN_IF_ERROR(Record(model.files().directory, *kind, rows));
  if (!evaluation.is_json) return absl::OkStatus();
  Json json = {{"model", model.path()}, {"dtype", engine->Stats().dtype}};
  if (!evaluation.tokens.empty()) json["text_tokens"] = evaluation.tokens.size();
  for (const EvalRow& row : rows) json["results"].push_back(RowJson(row));
  std::printf("%s\n", JsonLine(json).c_str());
  return absl::OkStatus();
}

}  // namespace

Command EvalCommand() {
  Command command("eval", "quality on a text, by attention mechanism and context length", RunEval);
  command.spec.positional = "perplexity|recall|choice FILE";
  command.spec.description =
      "perplexity cuts a text into windows of --context tokens, one every --stride tokens, scores "
      "each on its last --stride tokens, and prints exp(mean negative log-probability). recall "
      "hides codes in windows of the text and asks for them at the end, and for a passage to be "
      "repeated: `digits` and `copied` are the shares of tokens that the model predicts, `whole` "
      "that of codes. choice reads a question from each line of FILE, {\"prompt\": TEXT, "
      "\"choices\": [TEXT, ...], \"answer\": INDEX}: `right` is the share of questions whose most "
      "probable choice is the answer, `normalized` by log-probability per byte. Each --try is a "
      "row of the table: `cache` is what a window takes at most, `share` that of standard's. atp "
      "compresses the text itself here unless --prefill exact or --as-generated is said. No server "
      "is needed.";
  command.spec.groups = {{"Evaluation", kEvalFlags},
                         {"Model", ModelFlags()},
                         {"Engine", EngineFlags()},
                         {"Calibration of the model", CalibrationFlags()},
                         {"Attention", NamedAttentionFlags()},
                         {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey eval perplexity book.txt",
      "lowkey eval perplexity book.txt --context 1024,2048 --try standard --try \"atp --rank 1/4\"",
      "lowkey eval perplexity book.txt --model model --record --try standard --try taylorshift",
      "lowkey eval recall book.txt --try standard --try \"standard --cache-storage int4\"",
      "lowkey eval recall book.txt --model model --record --try standard --try atp",
      "lowkey eval recall book.txt --context 2048,4096 --try standard --try atp --html a.html",
      "lowkey eval choice questions.jsonl --model model.gguf --json",
  };
  return command;
}

}  // namespace lowkey

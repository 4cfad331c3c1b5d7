// Implements `lowkey generate`: sends one prompt to a server and shows what comes.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/connection_flags.h"
#include "engine/base/status_macros.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/layout.h"
#include "server/config/signals.h"
#include "server/config/terminal.h"

namespace lowkey {
namespace {

constexpr Flag kGenerateFlags[] = {
    {"timeout", "TIME", "", "give up after this long, such as 30s or 500ms [never]"},
};

std::string CacheText(const GenerationSummary& summary) {
  std::string text = BytesText(summary.cache_bytes);
  if (summary.standard_cache_bytes > 0) {
    const double percent = 100.0 * static_cast<double>(summary.cache_bytes) /
                           static_cast<double>(summary.standard_cache_bytes);
    absl::StrAppend(&text, absl::StrFormat(", %.1f%% of standard's ", percent),
                    BytesText(summary.standard_cache_bytes));
  }
  absl::StrAppend(&text, " (peak ", BytesText(summary.peak_cache_bytes), ")");
  return text;
}

std::string MechanismText(const GenerationSummary& summary) {
  std::string text = absl::StrCat(summary.mechanism, " (", summary.mechanism_reason,
                                  summary.is_approximate ? ", approximate" : ", exact", ")");
  if (summary.rank.has_value()) {
    absl::StrAppend(&text, ", rank ", *summary.rank, ", ", summary.n_compressed_blocks,
                    summary.n_compressed_blocks == 1 ? " block" : " blocks", " compressed");
  }
  return text;
}

std::string SpeedText(const GenerationSummary& summary) {
  std::string text;
  const int64_t n_choices = static_cast<int64_t>(summary.finish_reasons.size());
  const int64_t n_decoded = summary.n_generated_tokens - n_choices;
  if (n_decoded > 0 && summary.decode_us > 0) {
    const double rate =
        static_cast<double>(n_decoded) * 1e6 / static_cast<double>(summary.decode_us);
    text = absl::StrFormat("%.1f tokens/s, ", rate);
  }
  return absl::StrCat(text, "first token after ", DurationText(summary.ttft_us));
}

void PrintReport(const GenerationSummary& summary) {
  std::string tokens = absl::StrCat(CountText(summary.n_prompt_tokens), " prompt, ",
                                    CountText(summary.n_generated_tokens), " generated");
  if (summary.n_cached_tokens > 0) {
    absl::StrAppend(&tokens, ", ", CountText(summary.n_cached_tokens), " cached");
  }
  const std::string report = AlignedRows({{"mechanism", MechanismText(summary)},
                                          {"cache", CacheText(summary)},
                                          {"tokens", tokens},
                                          {"speed", SpeedText(summary)},
                                          {"seed", absl::StrCat(summary.seed)},
                                          {"finish", absl::StrJoin(summary.finish_reasons, ", ")}},
                                         StyleOf(stderr));
  std::fprintf(stderr, "\n%s", report.c_str());
}

// Shows a single choice as it comes, and several choices after the end, one below the other.
class TextPrinter {
 public:
  // In a terminal `prompt` is shown before the first text.
  TextPrinter(size_t n_choices, std::string prompt)
      : texts_(n_choices), prompt_(std::move(prompt)) {}

  void Add(int32_t choice, const std::string& text) {
    if (choice < 0 || static_cast<size_t>(choice) >= texts_.size()) return;
    if (texts_.size() == 1) {
      Begin();
      Write(is_terminal_ ? TerminalSafe(text) : text);
    }
    texts_[static_cast<size_t>(choice)] += text;
  }

  void End() {
    Begin();
    for (size_t i = 0; texts_.size() > 1 && i < texts_.size(); ++i) {
      Write(absl::StrCat("--- choice ", i, " ---\n",
                         is_terminal_ ? TerminalSafe(texts_[i]) : texts_[i], "\n"));
    }
    if (texts_.size() == 1) Write("\n");
  }

  // Ends the line that has begun, if any, after an error.
  void Abandon() {
    if (has_begun_) Write("\n");
  }

 private:
  void Begin() {
    if (!has_begun_ && is_terminal_ && texts_.size() == 1) {
      const Style style = StyleOf(stdout);
      Write(absl::StrCat(std::string(style.dim), TerminalSafe(prompt_), std::string(style.reset)));
    }
    has_begun_ = true;
  }

  static void Write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const bool is_terminal_ = IsTerminal(stdout);
  std::vector<std::string> texts_;
  const std::string prompt_;
  bool has_begun_ = false;
};

std::string QuotedPiece(const std::string& text) {
  return absl::StrCat("\"", TerminalSafe(absl::StrReplaceAll(text, {{"\n", "\\n"}, {"\t", "\\t"}})),
                      "\"");
}

// Prints one line per token: its log-probability and the most likely alternatives.
void PrintLogprobs(std::vector<LogprobReport> reports) {
  if (reports.empty()) return;
  std::stable_sort(reports.begin(), reports.end(),
                   [](const auto& a, const auto& b) { return a.choice < b.choice; });
  std::vector<Entry> entries = {{"logprob  token", "most likely"}};
  int32_t choice = 0;
  for (const LogprobReport& report : reports) {
    if (report.choice > choice) {
      choice = report.choice;
      entries.push_back({absl::StrCat("choice ", choice), ""});
    }
    std::vector<std::string> alternatives;
    for (const auto& [text, logprob] : report.alternatives) {
      alternatives.push_back(absl::StrFormat("%s %.3f", QuotedPiece(text), logprob));
    }
    entries.push_back({absl::StrFormat("%7.3f  %s", report.logprob, QuotedPiece(report.text)),
                       absl::StrJoin(alternatives, "  ")});
  }
  const Style style = StyleOf(stderr);
  const size_t columns = std::min<size_t>(style.columns, 1000);
  const std::string lines = EntryLines(entries, HeadWidth(entries, columns), columns);
  std::fprintf(stderr, "\n%s", lines.c_str());
}

absl::Status Stream(Client& client, const GenerationRequest& request) {
  const auto* text = std::get_if<std::string>(&request.input);
  TextPrinter printer(static_cast<size_t>(std::clamp(request.n.value_or(1), 1, kMaxChoices)),
                      text == nullptr ? "" : *text);
  std::vector<LogprobReport> logprobs;
  const absl::StatusOr<GenerationSummary> summary = client.GenerateStream(
      request, [&](int32_t choice, const std::string& piece) { printer.Add(choice, piece); },
      [&](LogprobReport report) { logprobs.push_back(std::move(report)); });
  if (!summary.ok()) {
    printer.Abandon();
    return summary.status();
  }
  printer.End();
  PrintLogprobs(std::move(logprobs));
  PrintReport(*summary);
  return absl::OkStatus();
}

// Returns a conversation that TEXT begins if --system is given, else TEXT itself.
absl::StatusOr<PromptInput> ReadInput(const FlagValues& flags, std::string text) {
  if (!flags.IsGiven("system")) return text;
  LK_RETURN_IF_ERROR(CheckUtf8("--system", flags.Text("system")));
  Conversation conversation;
  conversation.messages = {{.role = "system", .content = flags.Text("system")},
                           {.role = "user", .content = std::move(text)}};
  return conversation;
}

absl::Status RunGenerate(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(GenerationRequest request, ReadGeneration(flags));
  LK_ASSIGN_OR_RETURN(const std::optional<double> timeout, flags.Seconds("timeout"));
  // The request's other fields share the message with the text.
  LK_ASSIGN_OR_RETURN(std::string text, TextArgument(flags, kMaxMessageBytes - 65536));
  LK_RETURN_IF_ERROR(CheckUtf8("text", text));
  for (const std::string& stop : request.stop_texts) {
    LK_RETURN_IF_ERROR(CheckUtf8("--stop", stop));
  }
  LK_ASSIGN_OR_RETURN(request.input, ReadInput(flags, std::move(text)));
  if (timeout.has_value()) request.deadline = absl::Now() + absl::Seconds(*timeout);
  LK_ASSIGN_OR_RETURN(const ConnectOptions connection, ReadConnection(flags));
  // Signals are blocked before the client starts threads, so that Ctrl-C reaches the watcher alone.
  BlockStopSignals();
  Client client(connection);
  absl::Status status;
  {
    const SignalWatcher watcher([&client](int) { client.Cancel(); });
    if (flags.Switch("json")) {
      const absl::StatusOr<std::string> json = client.GenerateJson(request);
      if (json.ok()) std::printf("%s\n", json->c_str());
      status = json.status();
    } else {
      status = Stream(client, request);
    }
  }
  if (absl::IsCancelled(status)) return absl::CancelledError("cancelled");
  if (absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("not finished within --timeout ", flags.Text("timeout")));
  }
  return status;
}

}  // namespace

Command GenerateCommand() {
  Command command;
  command.spec.name = "generate";
  command.spec.summary = "continue a text with a running server, as it comes";
  command.spec.positional = "[TEXT]";
  command.spec.description =
      "Sends TEXT (or standard input, without a newline at its end) to a running server and "
      "prints its continuation as it comes, then a report on standard error. Flags that are not "
      "given are left to the server. With --system TEXT is a message, and what comes is the "
      "answer.";
  command.spec.groups = {{"Server", ClientFlags()},     {"Attention", AttentionFlags()},
                         {"Sampling", SamplingFlags()}, {"Generation", GenerationFlags()},
                         {"Time", kGenerateFlags},      {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey generate \"Once upon a time\"",
      "lowkey generate --attention atp --rank 1/4 --max-new-tokens 400 \"Once upon a time\"",
      "lowkey generate --temperature 0.8 --top-p 0.95 --seed 7 --n 3 \"The old fox\"",
      "lowkey generate --system \"You answer in one sentence.\" \"What is rain?\"",
      "lowkey generate --stop \"The End\" --json < prompt.txt",
  };
  command.run = RunGenerate;
  return command;
}

}  // namespace lowkey

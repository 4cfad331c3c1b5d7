// Implements `lowkey generate`: sends one prompt to a server and shows what comes.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/connection_flags.h"
#include "client/format_flags.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/terminal/layout.h"
#include "server/config/terminal/signals.h"
#include "server/config/terminal/terminal.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

constexpr Flag kGenerateFlags[] = {
    {"timeout", "TIME", "", "give up after this long, such as 30s or 500ms [never]"},
};

std::string CacheText(const v1::AttentionReport& attention) {
  std::string text = BytesText(attention.cache_bytes());
  if (attention.standard_cache_bytes() > 0) {
    const double percent = 100.0 * static_cast<double>(attention.cache_bytes()) /
                           static_cast<double>(attention.standard_cache_bytes());
    absl::StrAppend(&text, absl::StrFormat(", %.1f%% of standard's ", percent),
                    BytesText(attention.standard_cache_bytes()));
  }
  absl::StrAppend(&text, " (peak ", BytesText(attention.peak_cache_bytes()), ")");
  return text;
}

std::string MechanismText(const v1::AttentionReport& attention) {
  std::string text = absl::StrCat(attention.mechanism(), " (", attention.reason(),
                                  attention.approximate() ? ", approximate" : ", exact", ")");
  if (attention.has_rank()) {
    absl::StrAppend(&text, ", rank ", attention.rank(), ", ", attention.compressed_blocks(),
                    attention.compressed_blocks() == 1 ? " block" : " blocks", " compressed");
  }
  return text;
}

std::string SpeedText(const v1::FinalEvent& report) {
  std::string text;
  const int n_decoded = report.usage().generated_tokens() - report.choices_size();
  if (n_decoded > 0 && report.timings().decode_us() > 0) {
    const double rate = n_decoded * 1e6 / static_cast<double>(report.timings().decode_us());
    text = absl::StrFormat("%.1f tokens/s, ", rate);
  }
  return absl::StrCat(text, "first token after ", DurationText(report.timings().ttft_us()));
}

std::string TokensText(const v1::Usage& usage) {
  std::string text = absl::StrCat(CountText(usage.prompt_tokens()), " prompt, ",
                                  CountText(usage.generated_tokens()), " generated");
  if (usage.cached_tokens() > 0) {
    absl::StrAppend(&text, ", ", CountText(usage.cached_tokens()), " cached");
  }
  if (usage.drafted_tokens() > 0) {
    absl::StrAppend(&text, ", ", CountText(usage.accepted_tokens()), " of ",
                    CountText(usage.drafted_tokens()), " drafted accepted");
  }
  return text;
}

// Appends "FINISH_REASON_STOP_TOKEN" as "stop_token".
void AppendReason(std::string* text, const v1::ChoiceFinish& choice) {
  std::string name = v1::FinishReason_Name(choice.reason());
  name.erase(0, std::string_view("FINISH_REASON_").size());
  absl::StrAppend(text, absl::AsciiStrToLower(name));
}

void PrintReport(const v1::FinalEvent& report) {
  const std::string rows =
      AlignedRows({{"mechanism", MechanismText(report.attention())},
                   {"options", report.attention().options()},
                   {"cache", CacheText(report.attention())},
                   {"tokens", TokensText(report.usage())},
                   {"speed", SpeedText(report)},
                   {"seed", absl::StrCat(report.seed())},
                   {"finish", absl::StrJoin(report.choices(), ", ", AppendReason)}},
                  StyleOf(stderr));
  std::fprintf(stderr, "\n%s", rows.c_str());
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
      PrintNow(is_terminal_ ? TerminalSafe(text) : text);
    }
    texts_[static_cast<size_t>(choice)] += text;
  }

  void End() {
    Begin();
    for (size_t i = 0; texts_.size() > 1 && i < texts_.size(); ++i) {
      PrintNow(absl::StrCat("--- choice ", i, " ---\n",
                            is_terminal_ ? TerminalSafe(texts_[i]) : texts_[i], "\n"));
    }
    if (texts_.size() == 1) PrintNow("\n");
  }

  // Ends the line that has begun, if any, after an error.
  void Abandon() {
    if (has_begun_) PrintNow("\n");
  }

 private:
  void Begin() {
    if (!has_begun_ && is_terminal_ && texts_.size() == 1) {
      const Style style = StyleOf(stdout);
      PrintNow(
          absl::StrCat(std::string(style.dim), TerminalSafe(prompt_), std::string(style.reset)));
    }
    has_begun_ = true;
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

// Returns the token's own text where the server tells it: a delta's text lags behind its tokens.
const std::string& TextOf(const v1::Token& token, const v1::ChoiceDelta& delta) {
  for (const v1::TokenLogprob& alternative : token.top_logprobs()) {
    if (alternative.token_id() == token.token_id()) return alternative.text();
  }
  return delta.text();
}

// Prints one line per token that has a log-probability, and the most likely alternatives.
void PrintLogprobs(std::vector<v1::ChoiceDelta> deltas) {
  std::stable_sort(deltas.begin(), deltas.end(),
                   [](const auto& a, const auto& b) { return a.choice() < b.choice(); });
  std::vector<Entry> entries = {{"logprob  token", "most likely"}};
  int32_t choice = 0;
  for (const v1::ChoiceDelta& delta : deltas) {
    for (const v1::Token& token : delta.tokens()) {
      if (!token.has_logprob()) continue;
      if (delta.choice() > choice) {
        choice = delta.choice();
        entries.push_back({absl::StrCat("choice ", choice), ""});
      }
      std::vector<std::string> alternatives;
      for (const v1::TokenLogprob& top : token.top_logprobs()) {
        alternatives.push_back(absl::StrFormat("%s %.3f", QuotedPiece(top.text()), top.logprob()));
      }
      entries.push_back(
          {absl::StrFormat("%7.3f  %s", token.logprob(), QuotedPiece(TextOf(token, delta))),
           absl::StrJoin(alternatives, "  ")});
    }
  }
  if (entries.size() == 1) return;
  const size_t columns = std::min<size_t>(StyleOf(stderr).columns, 1000);
  const std::string lines = EntryLines(entries, HeadWidth(entries, columns), columns);
  std::fprintf(stderr, "\n%s", lines.c_str());
}

absl::Status Stream(Client& client, const GenerationRequest& request) {
  const auto* text = std::get_if<std::string>(&request.input);
  TextPrinter printer(static_cast<size_t>(std::clamp(request.n.value_or(1), 1, kMaxChoices)),
                      text == nullptr ? "" : *text);
  std::vector<v1::ChoiceDelta> deltas;
  const absl::StatusOr<v1::FinalEvent> report =
      client.GenerateStream(request, [&](const v1::ChoiceDelta& delta) {
        printer.Add(delta.choice(), delta.text());
        if (request.logprobs.has_value()) deltas.push_back(delta);
      });
  if (!report.ok()) {
    printer.Abandon();
    return report.status();
  }
  printer.End();
  PrintLogprobs(std::move(deltas));
  PrintReport(*report);
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
  LK_ASSIGN_OR_RETURN(request.response_format, ReadFormat(flags));
  LK_ASSIGN_OR_RETURN(const std::optional<double> timeout, flags.Seconds("timeout"));
  // The request's other fields share the message with the text.
  LK_ASSIGN_OR_RETURN(std::string text, TextArgument(flags, kMaxMessageBytes - 65536));
  LK_RETURN_IF_ERROR(CheckUtf8("text", text));
  for (const std::string& stop : request.stop_texts) {
    LK_RETURN_IF_ERROR(CheckUtf8("--stop", stop));
  }
  LK_ASSIGN_OR_RETURN(request.input, ReadInput(flags, std::move(text)));
  if (timeout.has_value()) request.deadline = SteadyNow() + absl::Seconds(*timeout);
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
  Command command("generate", "continue a text with a running server, as it comes", RunGenerate);
  command.spec.positional = "[TEXT]";
  command.spec.description =
      "Sends TEXT (or standard input, without a newline at its end) to a running server and "
      "prints its continuation as it comes, then a report on standard error. Flags that are not "
      "given are left to the server. With --system TEXT is a message, and what comes is the "
      "answer.";
  command.spec.groups = {{"Server", ClientFlags()},     {"Attention", AttentionFlags()},
                         {"Sampling", SamplingFlags()}, {"Generation", GenerationFlags()},
                         {"Form", FormatFlags()},       {"Drafts", DraftFlags()},
                         {"Time", kGenerateFlags},      {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey generate \"Once upon a time\"",
      "lowkey generate --attention atp --rank 1/4 --max-new-tokens 400 \"Once upon a time\"",
      "lowkey generate --temperature 0.8 --top-p 0.95 --seed 7 --n 3 \"The old fox\"",
      "lowkey generate --system \"You answer in one sentence.\" \"What is rain?\"",
      "lowkey generate --choice yes,no \"Is rain wet?\"",
      "lowkey generate --stop \"The End\" --json < prompt.txt",
  };
  return command;
}

}  // namespace lowkey

// Implements `lowkey chat`: a conversation in the terminal with a running server.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "client/chat_session.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/connection_flags.h"
#include "client/line_editor.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/terminal/signals.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {
namespace {

constexpr Flag kChatFlags[] = {
    {"system", "TEXT", "", "the system message"},
    {"max-new-tokens", "N", "", "tokens of an answer at most [what the context leaves]"},
    {"seed", "N", "", "same seed, same answers [drawn by the server]"},
    {"stop", "TEXT", "", "end an answer before this text", FlagKind::kRepeated},
};

constexpr char kPrompt[] = "> ";
constexpr char kHowToLeave[] = "/exit or ctrl-D leaves";

// Ends the answer that runs when Ctrl-C comes; without one, the program, unless it is interactive.
// (While a line is typed, the line editor takes Ctrl-C itself.)
class Interrupter {
 public:
  explicit Interrupter(const LineEditor* editor) : editor_(editor) {}

  // Called by the signals' thread.
  void OnSignal(int signal) {
    absl::MutexLock lock(&mutex_);
    if (client_ != nullptr && signal == SIGINT) return client_->Cancel();
    if (editor_ != nullptr && signal == SIGINT) {
      // The editor has not begun to read.
      std::fprintf(stderr, "\n%s\n%s", kHowToLeave, kPrompt);
      return;
    }
    if (editor_ != nullptr) editor_->RestoreTerminal();
    std::_Exit(128 + signal);
  }

  // Sets the client whose calls ctrl-C ends; null: none.
  void Watch(Client* client) {
    absl::MutexLock lock(&mutex_);
    client_ = client;
  }

 private:
  const LineEditor* const editor_;
  absl::Mutex mutex_;
  Client* client_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// Returns a line such as "23 tokens, 41.2 tokens/s, atp rank 16, cut at its length".
std::string StatusLine(const v1::FinalEvent& report, const ChatModel& model) {
  const int32_t n_generated = report.usage().generated_tokens();
  const int64_t decode_us = report.timings().decode_us();
  std::string line = absl::StrCat(CountText(n_generated), " tokens");
  if (n_generated > 1 && decode_us > 0) {
    absl::StrAppendFormat(&line, ", %.1f tokens/s", (n_generated - 1) * 1e6 / decode_us);
  }
  absl::StrAppend(&line, ", ", report.attention().mechanism());
  if (report.attention().has_rank()) absl::StrAppend(&line, " rank ", report.attention().rank());
  const bool is_cut =
      report.choices_size() == 1 && report.choices(0).reason() == v1::FINISH_REASON_LENGTH;
  if (!is_cut) return line;
  absl::StrAppend(&line, ", cut at its length");
  const bool is_full = report.usage().prompt_tokens() + n_generated >= model.context_tokens;
  return is_full ? absl::StrCat(line, ": the context is full, /reset begins anew") : line;
}

class Chat {
 public:
  Chat(const FlagValues& flags, ConnectOptions connection, ChatSession session, ChatModel model)
      : connection_(std::move(connection)),
        is_json_(flags.Switch("json")),
        is_length_given_(flags.Has("max-new-tokens")),
        session_(std::move(session)),
        model_(std::move(model)) {
    if (!IsTerminal(stdin)) return;
    editor_ = std::make_unique<LineEditor>(kPrompt, HistoryPath());
    Note(absl::StrCat("talking with ", model_.name, ", context of ",
                      CountText(model_.context_tokens), " tokens\n/help lists the commands, ",
                      kHowToLeave));
  }

  // Runs until the input ends or /exit. In a terminal an error ends only the answer, but a server
  // that is gone is the result; elsewhere the first error is.
  absl::Status Run() {
    Interrupter interrupter(editor_.get());
    interrupter_ = &interrupter;
    const SignalWatcher watcher([&](int signal) { interrupter.OnSignal(signal); });
    std::string line;
    absl::Status answered;
    while (!session_.is_over() && ReadLine(line)) {
      const bool is_command = ChatSession::IsCommand(line);
      const absl::Status status = is_command ? RunCommand(line) : Answer(line);
      if (!is_command) answered = status;
      if (!status.ok() && editor_ == nullptr) return status;
      if (!status.ok()) Note(std::string(status.message()));
    }
    return absl::IsUnavailable(answered) ? answered : absl::OkStatus();
  }

 private:
  // Reads the next line that is not blank. Returns false at the end of the input.
  bool ReadLine(std::string& line) {
    do {
      if (editor_ != nullptr) {
        const std::optional<std::string> typed = editor_->Read(kHowToLeave);
        if (!typed.has_value()) return false;
        line = *typed;
      } else if (!std::getline(std::cin, line)) {
        return false;
      }
    } while (line.find_first_not_of(" \t\r") == std::string::npos);
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }

  absl::Status RunCommand(const std::string& line) {
    LK_ASSIGN_OR_RETURN(const std::string said, session_.RunCommand(line));
    if (!said.empty()) Note(said);
    return absl::OkStatus();
  }

  absl::Status Answer(const std::string& line) {
    LK_RETURN_IF_ERROR(CheckUtf8("message", line));
    // Each answer has its own client, because a canceled client stays canceled.
    Client client(connection_);
    interrupter_->Watch(&client);
    GenerationRequest request = session_.Ask(line);
    absl::Status status = FillContext(client, request);
    if (status.ok()) {
      status = is_json_ ? AnswerInJson(client, request, line) : Stream(client, request, line);
    }
    interrupter_->Watch(nullptr);
    return absl::IsCancelled(status) ? absl::CancelledError("cancelled") : status;
  }

  // Lets the answer be as long as the context leaves, unless its length was given.
  absl::Status FillContext(Client& client, GenerationRequest& request) const {
    if (request.max_new_tokens.has_value()) return absl::OkStatus();
    LK_ASSIGN_OR_RETURN(const int32_t n_prompt, client.CountPromptTokens(request));
    // A prompt without room for an answer is left to the server, whose error says so.
    if (n_prompt < model_.context_tokens) request.max_new_tokens = model_.context_tokens - n_prompt;
    return absl::OkStatus();
  }

  absl::Status Stream(Client& client, GenerationRequest request, const std::string& line) {
    std::string answer;
    const auto show = [&](const v1::ChoiceDelta& delta) {
      PrintNow(is_terminal_ ? TerminalSafe(delta.text()) : delta.text());
      answer += delta.text();
    };
    absl::StatusOr<v1::FinalEvent> report = client.GenerateStream(request, show);
    if (IsTooLong(report.status(), request)) {
      request.max_new_tokens.reset();
      report = client.GenerateStream(request, show);
    }
    if (report.ok() || !answer.empty()) {
      PrintNow("\n");
      session_.Keep(line, answer);
    }
    if (!report.ok()) return report.status();
    Note(StatusLine(*report, model_));
    return absl::OkStatus();
  }

  absl::Status AnswerInJson(Client& client, GenerationRequest request, const std::string& line) {
    absl::StatusOr<std::string> json = client.GenerateJson(request);
    if (IsTooLong(json.status(), request)) {
      request.max_new_tokens.reset();
      json = client.GenerateJson(request);
    }
    if (!json.ok()) return json.status();
    PrintNow(*json + "\n");
    const absl::StatusOr<nlohmann::json> response = ParseJsonObject(*json, "response");
    const auto text = nlohmann::json::json_pointer("/choices/0/text");
    session_.Keep(line, response.ok() && response->contains(text)
                            ? response->at(text).get<std::string>()
                            : std::string());
    return absl::OkStatus();
  }

  // Returns whether the server must choose the answer's length, because its cache or mechanism has
  // less room than the context.
  bool IsTooLong(const absl::Status& status, const GenerationRequest& request) const {
    return absl::IsOutOfRange(status) && request.max_new_tokens.has_value() && !is_length_given_;
  }

  // Writes a line to standard error, so that standard output holds the answers alone.
  static void Note(const std::string& text) {
    const Style style = StyleOf(stderr);
    std::fprintf(stderr, "%s%s%s\n", std::string(style.dim).c_str(), text.c_str(),
                 std::string(style.reset).c_str());
  }
  const ConnectOptions connection_;
  const bool is_json_;
  const bool is_length_given_;
  const bool is_terminal_ = IsTerminal(stdout);
  ChatSession session_;
  const ChatModel model_;
  std::unique_ptr<LineEditor> editor_;  // null: lines come from a file
  Interrupter* interrupter_ = nullptr;  // set during Run
};

absl::Status RunChat(const FlagValues& flags) {
  GenerationRequest request;
  LK_ASSIGN_OR_RETURN(request.sampling, ReadSampling(flags));
  LK_ASSIGN_OR_RETURN(request.sampling.seed, flags.Seed("seed"));
  LK_ASSIGN_OR_RETURN(request.attention, ReadAttention(flags));
  LK_RETURN_IF_ERROR(flags.ReadInt("max-new-tokens", {1, 1 << 24}, request.max_new_tokens));
  request.stop_texts = flags.Texts("stop");
  LK_RETURN_IF_ERROR(CheckUtf8("--system", flags.Text("system")));
  LK_ASSIGN_OR_RETURN(ConnectOptions connection, ReadConnection(flags));
  // Signals are blocked before the client starts threads, so that Ctrl-C reaches the watcher alone.
  BlockStopSignals();
  absl::StatusOr<ChatModel> model = absl::CancelledError("cancelled");
  {
    Client client(connection);
    const SignalWatcher watcher([&client](int) { client.Cancel(); });
    model = client.GetModel();
  }
  if (!model.ok()) return model.status();
  if (!model->refusal.empty()) return absl::FailedPreconditionError(model->refusal);
  return Chat(flags, std::move(connection), ChatSession(std::move(request), flags.Text("system")),
              *std::move(model))
      .Run();
}

}  // namespace

Command ChatCommand() {
  Command command("chat", "talk with a model that a running server serves", RunChat);
  command.spec.description =
      "A conversation with a running server, which writes it as the model's chat template does. "
      "Each line is a message; answers come as they are generated. In a terminal lines can be "
      "edited, and arrow keys bring earlier ones back ($XDG_STATE_HOME/lowkey/history keeps "
      "them). /help lists what else a line can be. Ctrl-C ends an answer, /exit or ctrl-D the "
      "conversation. Standard input may also be a file of lines; the first error then ends the "
      "program.";
  command.spec.groups = {{"Server", ClientFlags()},
                         {"Attention", AttentionFlags()},
                         {"Sampling", SamplingFlags()},
                         {"Answers", kChatFlags},
                         {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey chat",
      "lowkey chat --system \"You answer in one sentence.\" --temperature 0.7",
      "lowkey chat --attention atp --rank 1/4 < questions.txt",
  };
  return command;
}

}  // namespace lowkey

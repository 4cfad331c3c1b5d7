// lowkey chat: a conversation in the terminal with a running server.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "client/chat_session.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/connection_flags.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/signals.h"
#include "server/config/terminal.h"

namespace lowkey {
namespace {

constexpr Flag kChatFlags[] = {
    {"system", "TEXT", "", "the system message"},
    {"max-new-tokens", "N", "", "tokens of an answer at most [128, or what the context leaves]"},
    {"seed", "N", "", "same seed, same answers [drawn by the server]"},
    {"stop", "TEXT", "", "end an answer before this text", FlagKind::kRepeated},
};

constexpr char kPrompt[] = "> ";

// Ctrl-C: ends the answer that runs, or says how to leave.
class Interrupter {
 public:
  explicit Interrupter(bool is_interactive) : is_interactive_(is_interactive) {}

  // From the signals' thread.
  void OnSignal(int signal) {
    if (signal == SIGTERM) std::_Exit(128 + SIGTERM);
    absl::MutexLock lock(&mutex_);
    if (client_ != nullptr) {
      client_->Cancel();
    } else if (is_interactive_) {
      std::fprintf(stderr, "\n/exit or ctrl-D leaves\n%s", kPrompt);
    } else {
      std::_Exit(128 + SIGINT);
    }
  }

  // The client whose calls ctrl-C is to end; null: none.
  void Watch(Client* client) {
    absl::MutexLock lock(&mutex_);
    client_ = client;
  }

 private:
  const bool is_interactive_;
  absl::Mutex mutex_;
  Client* client_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// "23 tokens, 41.2 tokens/s, atp rank 16, length".
std::string StatusLine(const GenerationSummary& summary) {
  std::string line = absl::StrCat(CountText(summary.n_generated_tokens), " tokens");
  if (summary.n_generated_tokens > 1 && summary.decode_us > 0) {
    absl::StrAppendFormat(&line, ", %.1f tokens/s",
                          static_cast<double>(summary.n_generated_tokens - 1) * 1e6 /
                              static_cast<double>(summary.decode_us));
  }
  absl::StrAppend(&line, ", ", summary.mechanism);
  if (summary.rank.has_value()) absl::StrAppend(&line, " rank ", *summary.rank);
  for (const std::string& reason : summary.finish_reasons) {
    if (reason == "length") absl::StrAppend(&line, ", cut at its length");
  }
  return line;
}

class Chat {
 public:
  Chat(const FlagValues& flags, ConnectOptions connection, ChatSession session)
      : connection_(std::move(connection)),
        is_json_(flags.Switch("json")),
        session_(std::move(session)) {}

  // Until the input ends or /exit. Without a terminal, to the first error.
  absl::Status Run() {
    const SignalWatcher watcher([this](int signal) { interrupter_.OnSignal(signal); });
    std::string line;
    while (!session_.is_over() && ReadLine(line)) {
      const absl::Status status = ChatSession::IsCommand(line) ? RunCommand(line) : Answer(line);
      if (absl::IsCancelled(status) && is_interactive_) {
        Note("cancelled");
      } else if (!status.ok()) {
        if (!is_interactive_) return status;
        Note(std::string(status.message()));
      }
    }
    return absl::OkStatus();
  }

 private:
  // The next line that is not blank. False: there are no more.
  bool ReadLine(std::string& line) {
    do {
      if (is_interactive_) Write(kPrompt);
      if (!std::getline(std::cin, line)) {
        if (is_interactive_) Write("\n");
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
    // One for each answer: what has been cancelled stays so.
    Client client(connection_);
    interrupter_.Watch(&client);
    const GenerationRequest request = session_.Ask(line);
    const absl::Status status =
        is_json_ ? AnswerInJson(client, request, line) : Stream(client, request, line);
    interrupter_.Watch(nullptr);
    return absl::IsCancelled(status) ? absl::CancelledError("cancelled") : status;
  }

  absl::Status Stream(Client& client, const GenerationRequest& request, const std::string& line) {
    std::string answer;
    const absl::StatusOr<GenerationSummary> summary =
        client.GenerateStream(request, [&](int32_t, const std::string& text) {
          Write(is_terminal_ ? TerminalSafe(text) : text);
          answer += text;
        });
    if (summary.ok() || !answer.empty()) {
      Write("\n");
      session_.Keep(line, answer);
    }
    if (!summary.ok()) return summary.status();
    Note(StatusLine(*summary));
    return absl::OkStatus();
  }

  absl::Status AnswerInJson(Client& client, const GenerationRequest& request,
                            const std::string& line) {
    LK_ASSIGN_OR_RETURN(const std::string json, client.GenerateJson(request));
    Write(json + "\n");
    const absl::StatusOr<nlohmann::json> response = ParseJsonObject(json, "response");
    const auto text = nlohmann::json::json_pointer("/choices/0/text");
    session_.Keep(line, response.ok() && response->contains(text)
                            ? response->at(text).get<std::string>()
                            : std::string());
    return absl::OkStatus();
  }

  // To standard error, where it is in nobody's way.
  static void Note(const std::string& text) {
    const Style style = StyleOf(stderr);
    std::fprintf(stderr, "%s%s%s\n", std::string(style.dim).c_str(), text.c_str(),
                 std::string(style.reset).c_str());
  }
  static void Write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  const ConnectOptions connection_;
  const bool is_json_;
  const bool is_interactive_ = IsTerminal(stdin);
  const bool is_terminal_ = IsTerminal(stdout);
  ChatSession session_;
  Interrupter interrupter_{is_interactive_};
};

absl::Status RunChat(const FlagValues& flags) {
  GenerationRequest request;
  LK_ASSIGN_OR_RETURN(request.sampling, ReadSampling(flags));
  LK_ASSIGN_OR_RETURN(request.sampling.seed, flags.Seed("seed"));
  LK_ASSIGN_OR_RETURN(request.attention, ReadAttention(flags));
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> max_new_tokens,
                      flags.Int("max-new-tokens", 1, 1 << 24));
  if (max_new_tokens.has_value()) request.max_new_tokens = static_cast<int32_t>(*max_new_tokens);
  request.stop_texts = flags.Texts("stop");
  LK_RETURN_IF_ERROR(CheckUtf8("--system", flags.Text("system")));
  LK_ASSIGN_OR_RETURN(ConnectOptions connection, ReadConnection(flags));
  // Before the client's threads, so that Ctrl-C reaches the watcher alone.
  BlockStopSignals();
  if (IsTerminal(stdin)) std::fputs("/help lists the commands, /exit or ctrl-D leaves\n", stderr);
  return Chat(flags, std::move(connection), ChatSession(std::move(request), flags.Text("system")))
      .Run();
}

}  // namespace

Command ChatCommand() {
  Command command;
  command.spec.name = "chat";
  command.spec.summary = "talk with a model that a running server serves";
  command.spec.description =
      "A conversation with a running server, which writes it as the model's chat template does.\n"
      "Each line is a message; answers come as they are generated. /help lists what else a line\n"
      "can be. Ctrl-C ends an answer, /exit or ctrl-D the conversation. Standard input may also "
      "be\n"
      "a file of lines; the first error then ends the program.";
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
  command.run = RunChat;
  return command;
}

}  // namespace lowkey

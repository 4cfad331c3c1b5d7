// The real `lowkey chat`, in a terminal and with a script, over a socket to a server whose engine
// the test plays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "server/front/server.h"
#include "server/text/text_service.h"
#include "tests/integration/child_process.h"
#include "tests/integration/terminal_process.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTemplate[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

class ChatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = Server::Start(service_, {.port = 0});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    // Where the program keeps its history.
    setenv("XDG_STATE_HOME", state_.path().c_str(), /*overwrite=*/1);
  }

  std::vector<std::string> Command(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {LOWKEY_BINARY, "chat", "--server", server_->address()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  // Waits for the one request that runs; what its prompt says.
  std::string TakePrompt(RequestId& id) {
    EXPECT_TRUE(engine_.WaitForRunning(1));
    if (engine_.ids().empty()) return "";
    id = engine_.ids().front();
    return *TestTokenizer().Decode(engine_.request(id).prompt);
  }

  void Emit(RequestId id, const std::string& text) {
    for (int32_t token : BytePieces(text)) engine_.Emit(id, token);
  }

  // Answers one request; what its prompt said.
  std::string Answer(const std::string& text) {
    RequestId id = 0;
    std::string prompt = TakePrompt(id);
    Emit(id, text);
    engine_.Finish(id, FinishReason::kStopToken);
    // The next request of a script may run by now.
    EXPECT_THAT(engine_.ids(), Not(Contains(id)));
    return prompt;
  }

  TempDirectory state_;
  FakeEngine engine_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}, ChatTemplates(kTemplate)}};
  std::unique_ptr<Server> server_;
};

TEST_F(ChatTest, TurnsBuildOnEachOtherUntilReset) {
  TerminalProcess chat(Command({"--system", "Be kind."}));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("Hello\n");
  EXPECT_EQ(Answer("Hi you"), "<system>Be kind.<user>Hello<assistant>");
  ASSERT_TRUE(chat.WaitForText("Hi you"));
  ASSERT_TRUE(chat.WaitForText("6 tokens"));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("//etc\n");
  EXPECT_EQ(Answer("yes"), "<system>Be kind.<user>Hello<assistant>Hi you<user>/etc<assistant>");
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("/system\n/reset\nAgain\n");
  EXPECT_EQ(Answer("ok"), "<user>Again<assistant>");
  chat.Type("/exit\n");
  EXPECT_EQ(chat.Wait(), 0) << chat.screen();
}

TEST_F(ChatTest, CtrlCEndsTheAnswerAndNotTheProgram) {
  TerminalProcess chat(Command());
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("Tell me\n");
  RequestId id = 0;
  TakePrompt(id);
  Emit(id, "Once upon");
  ASSERT_TRUE(chat.WaitForText("Once upon"));
  chat.Type("\x03");
  ASSERT_TRUE(engine_.WaitForRunning(0)) << "the server's request goes on";
  ASSERT_TRUE(chat.WaitForText("cancelled"));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("Go on\n");
  EXPECT_EQ(Answer("a time"), "<user>Tell me<assistant>Once upon<user>Go on<assistant>");
  ASSERT_TRUE(chat.WaitForText("a time"));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0) << chat.screen();
}

TEST_F(ChatTest, CtrlCAtThePromptSaysHowToLeave) {
  TerminalProcess chat(Command());
  ASSERT_TRUE(chat.WaitForText("\n> "));
  chat.Type("\x03");
  ASSERT_TRUE(chat.WaitForText("/exit or ctrl-D leaves"));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("Hello\n");
  EXPECT_EQ(Answer("Hi"), "<user>Hello<assistant>");
  ASSERT_TRUE(chat.WaitForText("Hi"));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("/exit\n");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTest, CtrlCDropsTheLineThatIsTyped) {
  TerminalProcess chat(Command());
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("Never mind\x03");
  ASSERT_TRUE(chat.WaitForText("/exit or ctrl-D leaves"));
  chat.Type("Hello\n");
  EXPECT_EQ(Answer("Hi"), "<user>Hello<assistant>");
  chat.Type("/exit\n");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTest, LinesAreEditedAndComeBackInTheNextSession) {
  const std::string history = state_.path() + "/lowkey/history";
  {
    TerminalProcess chat(Command());
    ASSERT_TRUE(chat.WaitForText("> "));
    chat.Type("Helo\x02l\n");  // ctrl-B: one to the left
    EXPECT_EQ(Answer("Hi"), "<user>Hello<assistant>");
    chat.Type("/exit\n");
    EXPECT_EQ(chat.Wait(), 0);
  }
  using Perms = std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(history).permissions(), Perms::owner_read | Perms::owner_write);
  TerminalProcess chat(Command());
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("\033[A\x10\n");  // up, and ctrl-P
  EXPECT_EQ(Answer("Hi"), "<user>Hello<assistant>");
  ASSERT_TRUE(chat.WaitForText("2 tokens"));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTest, ModelIsNamedBeforeTheFirstPrompt) {
  TerminalProcess chat(Command());
  ASSERT_TRUE(chat.WaitForText("talking with tales"));
  ASSERT_TRUE(chat.WaitForText("> "));
}

TEST_F(ChatTest, NoPromptWithoutATemplateOrAServer) {
  TextService plain(engine_, TestTokenizer(), {"tales", {}});
  const auto server = Server::Start(plain, {.port = 0});
  ASSERT_TRUE(server.ok());
  TerminalProcess refused({LOWKEY_BINARY, "chat", "--server", (*server)->address()});
  EXPECT_EQ(refused.Wait(), 1);
  EXPECT_THAT(refused.screen(), HasSubstr("--chat-template FILE"));
  EXPECT_THAT(refused.screen(), Not(HasSubstr("> ")));
  TerminalProcess alone({LOWKEY_BINARY, "chat", "--server", "127.0.0.1:1"});
  EXPECT_EQ(alone.Wait(), 1);
  EXPECT_THAT(alone.screen(), HasSubstr("no server answers at 127.0.0.1:1"));
  EXPECT_THAT(alone.screen(), Not(HasSubstr("> ")));
}

TEST_F(ChatTest, ServerThatIsGoneIsTheExitCode) {
  TerminalProcess chat(Command());
  ASSERT_TRUE(chat.WaitForText("> "));
  server_.reset();
  chat.Type("Hello\n");
  ASSERT_TRUE(chat.WaitForText("no server answers"));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("/exit\n");
  EXPECT_EQ(chat.Wait(), 1);
}

TEST_F(ChatTest, AnswersMayFillTheContextUnlessTheirLengthIsGiven) {
  {
    TerminalProcess chat(Command());
    ASSERT_TRUE(chat.WaitForText("> "));
    chat.Type("Hello\n");
    RequestId id = 0;
    TakePrompt(id);
    const EngineRequest request = engine_.request(id);
    EXPECT_EQ(request.max_new_tokens + static_cast<int32_t>(request.prompt.size()),
              engine_.limits().context_tokens);
    engine_.Finish(id, FinishReason::kStopToken);
    ASSERT_TRUE(engine_.WaitForRunning(0));
  }
  TerminalProcess chat(Command({"--max-new-tokens", "5"}));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("Hello\n");
  RequestId id = 0;
  TakePrompt(id);
  EXPECT_EQ(engine_.request(id).max_new_tokens, 5);
  engine_.Finish(id, FinishReason::kStopToken);
}

TEST_F(ChatTest, ErrorsLeaveTheConversationAsItWas) {
  TerminalProcess chat(Command());
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("/atention atp\n");
  ASSERT_TRUE(chat.WaitForText("did you mean /attention?"));
  chat.Type("/attention atp --rank 9/4\n");
  ASSERT_TRUE(chat.WaitForText("expected"));
  engine_.RefuseWith(absl::ResourceExhaustedError("queue: full"));
  chat.Type("Hello\n");
  ASSERT_TRUE(chat.WaitForText("queue: full"));
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("/exit\n");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTest, AttentionCanBeChangedBetweenAnswers) {
  TerminalProcess chat(Command());
  ASSERT_TRUE(chat.WaitForText("> "));
  chat.Type("/attention atp --rank 8 --block 64\nHello\n");
  RequestId id = 0;
  TakePrompt(id);
  EXPECT_EQ(engine_.request(id).attention.mechanism, Mechanism::kAtp);
  EXPECT_EQ(engine_.request(id).attention.atp.block_tokens, 64);
  engine_.Finish(id, FinishReason::kLength);
  ASSERT_TRUE(chat.WaitForText("atp"));
  ASSERT_TRUE(chat.WaitForText("cut at its length"));
  chat.Type("/exit\n");
  EXPECT_EQ(chat.Wait(), 0);
}

TEST_F(ChatTest, ScriptOfLinesGivesAnswersAlone) {
  ChildProcess chat(Command({"--max-new-tokens", "5"}), {}, "One\n\n/help\nTwo\n");
  std::thread answers([this] {
    EXPECT_EQ(Answer("1"), "<user>One<assistant>");
    EXPECT_EQ(Answer("2"), "<user>One<assistant>1<user>Two<assistant>");
  });
  EXPECT_EQ(chat.Wait(), 0) << chat.errors();
  answers.join();
  EXPECT_EQ(chat.output(), "1\n2\n");
  EXPECT_THAT(chat.errors(), HasSubstr("/attention NAME"));
  EXPECT_THAT(chat.errors(), Not(HasSubstr("\033")));
}

TEST_F(ChatTest, ScriptEndsAtItsFirstError) {
  ChildProcess chat(Command(), {}, "/nonsense\nHello\n");
  EXPECT_EQ(chat.Wait(), 2);
  EXPECT_THAT(chat.errors(), HasSubstr("unknown command /nonsense"));
}

TEST_F(ChatTest, JsonIsOneLineForEachAnswerAndKeepsTheHistory) {
  ChildProcess chat(Command({"--json"}), {}, "One\nTwo\n");
  std::thread answers([this] {
    Answer("a \"b\"");
    EXPECT_EQ(Answer("2"), "<user>One<assistant>a \"b\"<user>Two<assistant>");
  });
  EXPECT_EQ(chat.Wait(), 0) << chat.errors();
  answers.join();
  const std::string output = chat.output();
  const auto first = nlohmann::json::parse(output.substr(0, output.find('\n')));
  EXPECT_EQ(first["choices"][0]["text"], "a \"b\"");
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 2);
}

TEST_F(ChatTest, GenerateWithASystemMessageAnswersAMessage) {
  ChildProcess generate({LOWKEY_BINARY, "generate", "--server", server_->address(), "--system",
                         "Be kind.", "<user>Hello"});
  EXPECT_EQ(Answer("Hi"), "<system>Be kind.<user><user>Hello<assistant>");
  EXPECT_EQ(generate.Wait(), 0) << generate.errors();
  EXPECT_EQ(generate.output(), "Hi\n");
}

TEST_F(ChatTest, ServerWithoutATemplateSaysWhatToDo) {
  TextService plain(engine_, TestTokenizer(), {"tales", {}});
  const auto server = Server::Start(plain, {.port = 0});
  ASSERT_TRUE(server.ok());
  ChildProcess chat({LOWKEY_BINARY, "chat", "--server", (*server)->address()}, {}, "Hello\n");
  EXPECT_EQ(chat.Wait(), 1);
  EXPECT_THAT(chat.errors(), HasSubstr("--chat-template FILE"));
}

}  // namespace
}  // namespace lowkey

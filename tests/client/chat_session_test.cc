#include "client/chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lowkey {
namespace {

using ::testing::HasSubstr;

std::string Prompt(const ChatSession& session, const std::string& line) {
  std::string prompt;
  const GenerationRequest request = session.Ask(line);
  for (const ChatMessage& message : std::get<Conversation>(request.input).messages) {
    prompt += message.role + ":" + *message.content + ";";
  }
  return prompt;
}

std::string Refusal(ChatSession& session, const std::string& line) {
  const auto said = session.RunCommand(line);
  EXPECT_EQ(said.status().code(), absl::StatusCode::kInvalidArgument) << line;
  return std::string(said.status().message());
}

TEST(ChatSessionTest, OneSlashBeginsACommandAndTwoAMessage) {
  EXPECT_TRUE(ChatSession::IsCommand("/help"));
  EXPECT_FALSE(ChatSession::IsCommand("//help"));
  EXPECT_FALSE(ChatSession::IsCommand("a /help"));
  EXPECT_EQ(Prompt(ChatSession({}, ""), "//x"), "user:/x;");
}

TEST(ChatSessionTest, AskingChangesNothingUntilTheAnswerIsKept) {
  ChatSession session({}, "sys");
  EXPECT_EQ(Prompt(session, "a"), "system:sys;user:a;");
  EXPECT_EQ(Prompt(session, "b"), "system:sys;user:b;");
  session.Keep("b", "B");
  EXPECT_EQ(Prompt(session, "c"), "system:sys;user:b;assistant:B;user:c;");
}

TEST(ChatSessionTest, ResetKeepsTheSystemMessage) {
  ChatSession session({}, "");
  session.Keep("a", "A");
  EXPECT_TRUE(session.RunCommand("/system  You are kind. ").ok());
  EXPECT_EQ(Prompt(session, "b"), "system:You are kind.;user:a;assistant:A;user:b;");
  EXPECT_TRUE(session.RunCommand("/reset").ok());
  EXPECT_EQ(Prompt(session, "b"), "system:You are kind.;user:b;");
  EXPECT_TRUE(session.RunCommand("/system").ok());
  EXPECT_EQ(Prompt(session, "b"), "user:b;");
}

TEST(ChatSessionTest, AttentionTakesTheFlagsOfOtherCommands) {
  ChatSession session({}, "");
  EXPECT_EQ(*session.RunCommand("/attention atp --rank 1/8 --basis=kv"), "attention: atp");
  GenerationRequest request = session.Ask("a");
  EXPECT_EQ(request.attention.mechanism, "atp");
  EXPECT_EQ(request.attention.options, (OptionValues{{"rank", "1/8"}, {"basis", "kv"}}));
  EXPECT_EQ(*session.RunCommand("/attention"), "attention: the server's default");
  EXPECT_FALSE(session.Ask("a").attention.mechanism.has_value());
}

TEST(ChatSessionTest, AttentionThatIsRefusedChangesNothing) {
  ChatSession session({}, "");
  ASSERT_TRUE(session.RunCommand("/attention atp --rank 4").ok());
  EXPECT_THAT(Refusal(session, "/attention nope"), HasSubstr("super, lasso or auto"));
  EXPECT_THAT(Refusal(session, "/attention standard --rank 4"), HasSubstr("rank"));
  EXPECT_THAT(Refusal(session, "/attention atp --rnak 4"), HasSubstr("did you mean --rank?"));
  EXPECT_THAT(Refusal(session, "/attention atp standard"), HasSubstr("more than one name"));
  EXPECT_EQ(session.Ask("a").attention.options, (OptionValues{{"rank", "4"}}));
}

TEST(ChatSessionTest, AttentionCanBeLeftToTheServer) {
  ChatSession session({}, "");
  EXPECT_EQ(*session.RunCommand("/attention auto --objective memory"), "attention: auto");
  EXPECT_EQ(session.Ask("a").attention.objective, "memory");
}

TEST(ChatSessionTest, UnknownCommandsAreAnsweredWithTheNearest) {
  ChatSession session({}, "");
  EXPECT_THAT(Refusal(session, "/rest"), HasSubstr("did you mean /reset?"));
  EXPECT_THAT(Refusal(session, "/"), HasSubstr("/help lists them"));
  EXPECT_THAT(Refusal(session, "/reset now"), HasSubstr("takes nothing more"));
  EXPECT_FALSE(session.is_over());
}

TEST(ChatSessionTest, ExitEndsIt) {
  ChatSession session({}, "");
  EXPECT_THAT(*session.RunCommand("/help"), HasSubstr("/attention"));
  EXPECT_TRUE(session.RunCommand("/exit").ok());
  EXPECT_TRUE(session.is_over());
}

}  // namespace
}  // namespace lowkey

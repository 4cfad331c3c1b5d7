#include "server/api/openai/error_names.h"

#include <gtest/gtest.h>

#include <string>

namespace lowkey {
namespace {

struct Named {
  const char* message;
  const char* of_chats;
  const char* of_responses;
};

TEST(WithApiNamesTest, FieldsAreThoseThatTheClientSent) {
  const Named cases[] = {
      {"messages: no template", "messages: no template", "input: no template"},
      {"chat: too long", "messages: too long", "input: too long"},
      {"chat.messages: 0", "messages: 0", "input: 0"},
      {"chat: tools_json: byte 2", "tools: byte 2", "tools: byte 2"},
      {"chat: variables_json: byte 2", "chat_template_kwargs: byte 2",
       "chat_template_kwargs: byte 2"},
      {"prompt: 0 tokens", "prompt: 0 tokens", "input: 0 tokens"},
      {"max_new_tokens: 0", "max_tokens: 0", "max_output_tokens: 0"},
      {"prompt and max_new_tokens: 9", "max_tokens: prompt and answer have 9",
       "max_output_tokens: input and answer have 9"},
      {"prompt + max_new_tokens: 9", "max_tokens: prompt and answer have 9",
       "max_output_tokens: input and answer have 9"},
      {"tools[0].function.name: x", "tools[0].function.name: x", "tools[0].name: x"},
      {"temperature: 9", "temperature: 9", "temperature: 9"},
  };
  for (const Named& named : cases) {
    const absl::Status status = absl::InvalidArgumentError(named.message);
    EXPECT_EQ(std::string(WithApiNames(status).message()), named.of_chats);
    EXPECT_EQ(std::string(WithApiNames(status, FieldNames::kResponses).message()),
              named.of_responses);
    EXPECT_EQ(WithApiNames(status).code(), status.code());
  }
}

}  // namespace
}  // namespace lowkey

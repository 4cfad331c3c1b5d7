#include "server/api/calls/event_queue.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

v1::ChoiceDelta Delta(int32_t choice, const std::string& text, int n_tokens = 1) {
  v1::ChoiceDelta delta;
  delta.set_choice(choice);
  delta.set_text(text);
  for (int i = 0; i < n_tokens; ++i) delta.add_tokens()->set_token_id(i);
  return delta;
}

TEST(EventQueueTest, JoinsNeighboringDeltasOfAChoice) {
  EventQueue queue;
  queue.AddDelta(Delta(0, "a"));
  queue.AddDelta(Delta(0, "b"));
  queue.AddDelta(Delta(0, "c"));
  EXPECT_EQ(queue.front().delta().text(), "abc");
  EXPECT_EQ(queue.front().delta().tokens_size(), 3);
  queue.PopFront();
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueueTest, NeverJoinsAcrossChoicesOrOtherEvents) {
  EventQueue queue;
  queue.AddDelta(Delta(0, "a"));
  queue.AddDelta(Delta(0, "b"));
  queue.AddDelta(Delta(1, "c"));
  queue.AddPromptLogprobs({});
  queue.AddFinal({});
  std::vector<std::string> texts;
  for (; !queue.empty(); queue.PopFront()) {
    const v1::GenerateEvent& event = queue.front();
    texts.push_back(event.has_final()             ? "final"
                    : event.has_prompt_logprobs() ? "prompt"
                                                  : event.delta().text());
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"ab", "c", "prompt", "final"}));
}

TEST(EventQueueTest, CountsTheTokensThatWait) {
  EventQueue queue;
  queue.AddDelta(Delta(0, "a", 2));
  queue.AddDelta(Delta(0, "b", 3));
  queue.AddDelta(Delta(1, "c", 4));
  queue.AddDelta(Delta(1, "held back", 0));
  queue.AddFinal({});
  EXPECT_EQ(queue.n_tokens(), 9u);
  queue.PopFront();
  EXPECT_EQ(queue.n_tokens(), 4u);
  queue.Clear();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.n_tokens(), 0u);
}

}  // namespace
}  // namespace lowkey

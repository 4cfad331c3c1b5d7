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
  const v1::GenerateEvent event = queue.Take();
  EXPECT_EQ(event.delta().text(), "abc");
  EXPECT_EQ(event.delta().tokens_size(), 3);
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueueTest, NeverJoinsAcrossChoicesOrOtherEvents) {
  EventQueue queue;
  queue.AddDelta(Delta(0, "a"));
  queue.AddDelta(Delta(0, "b"));
  queue.AddDelta(Delta(1, "c"));
  queue.AddFinal({});
  std::vector<std::string> texts;
  while (!queue.empty()) {
    const v1::GenerateEvent event = queue.Take();
    texts.push_back(event.has_final() ? "final" : event.delta().text());
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"ab", "c", "final"}));
}

TEST(EventQueueTest, CountsTheTokensThatWait) {
  EventQueue queue;
  queue.AddDelta(Delta(0, "a", 2));
  queue.AddDelta(Delta(0, "b", 3));
  queue.AddDelta(Delta(1, "c", 4));
  queue.AddDelta(Delta(1, "held back", 0));
  queue.AddFinal({});
  EXPECT_EQ(queue.n_tokens(), 9u);
  queue.Take();
  EXPECT_EQ(queue.n_tokens(), 4u);
  queue.Take();
  queue.Take();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.n_tokens(), 0u);
}

}  // namespace
}  // namespace lowkey

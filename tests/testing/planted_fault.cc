// planted_fault leak|race|guarded: does wrong on purpose, so that the tests know that the sanitizer
// they run under says so; "guarded" is the race with its mutex held, of which nothing may be said.
#include <cstdio>
#include <deque>
#include <memory>
#include <string_view>
#include <thread>

#include "absl/synchronization/mutex.h"

namespace lowkey {
namespace {

struct Queue {
  absl::Mutex mutex;
  std::deque<int> items;
};

void Produce(Queue& queue) {
  for (int i = 0; i < 10000; ++i) {
    absl::MutexLock lock(&queue.mutex);
    queue.items.push_back(i);
  }
}

// Waits by a condition, which other threads evaluate when they unlock.
void Consume(Queue& queue) {
  const auto has_items = [&queue] { return !queue.items.empty(); };
  for (int n = 0; n < 10000; ++n) {
    absl::MutexLock lock(&queue.mutex, absl::Condition(&has_items));
    queue.items.pop_front();
  }
}

void Race() {
  int n_items = 0;
  std::thread other([&n_items] { ++n_items; });
  ++n_items;
  other.join();
  std::printf("%d items\n", n_items);
}

void Guarded() {
  Queue queue;
  std::thread producer([&queue] { Produce(queue); });
  Consume(queue);
  producer.join();
  std::printf("%zu items left\n", queue.items.size());
}

// Not inlined, so that no register or stack slot still points to what is lost.
__attribute__((noinline)) void Leak() {
  auto lost = std::make_unique<Queue>();
  Produce(*lost);
  std::printf("%zu items lost\n", lost.release()->items.size());
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "leak") {
    lowkey::Leak();
  } else if (what == "race") {
    lowkey::Race();
  } else if (what == "guarded") {
    lowkey::Guarded();
  } else {
    return 2;
  }
  return 0;
}

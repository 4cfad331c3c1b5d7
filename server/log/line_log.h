#ifndef LOWKEY_SERVER_LOG_LINE_LOG_H_
#define LOWKEY_SERVER_LOG_LINE_LOG_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace lowkey {

// Writes lines to a file descriptor from a thread of its own, so that nobody ever waits for a pipe
// that is not read. Lines that find the queue full, or that cannot be written, are dropped and
// counted. SIGPIPE must be ignored (IgnoreBrokenPipes). Thread-safe.
class LineLog {
 public:
  // With the newline; longer lines are cut. A pipe takes this much as a whole.
  static constexpr size_t kMaxLineBytes = 4096;
  static constexpr size_t kMaxQueuedLines = 1024;

  // The descriptor must stay open until the process ends: a write to it may never return.
  explicit LineLog(int descriptor);
  // Gives the queue a second to be written.
  ~LineLog();
  LineLog(const LineLog&) = delete;
  LineLog& operator=(const LineLog&) = delete;

  // Queues a line, to which a newline is added; those within it become spaces. Never blocks.
  void Write(std::string line);

  // Waits until all queued lines are written or dropped, at most so long; returns whether they are.
  bool Flush(absl::Duration timeout);

  int64_t n_dropped() const;

 private:
  struct State;

  static void Run(State& state, int descriptor);

  // The thread shares it: a write that never returns outlives this object.
  const std::shared_ptr<State> state_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_LOG_LINE_LOG_H_

#include "server/log/line_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace lowkey {
namespace {

constexpr absl::Duration kLastFlush = absl::Seconds(1);

// Cuts a line between two characters of UTF-8.
void Shorten(std::string& line, size_t max_bytes) {
  if (line.size() <= max_bytes) return;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0U) == 0x80U) --end;
  line.resize(end);
}

// Writes all of `text`, however long that takes; false if the descriptor takes no more.
bool WriteAll(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(descriptor, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd writable = {descriptor, POLLOUT, 0};
      poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct LineLog::State {
  bool IsIdle() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return queue.empty() && !is_writing; }
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return !queue.empty() || is_closing; }

  absl::Mutex mutex;
  std::deque<std::string> queue ABSL_GUARDED_BY(mutex);
  bool is_writing ABSL_GUARDED_BY(mutex) = false;
  bool is_closing ABSL_GUARDED_BY(mutex) = false;
  int64_t n_dropped ABSL_GUARDED_BY(mutex) = 0;
};

LineLog::LineLog(int descriptor) : state_(std::make_shared<State>()) {
  std::thread([state = state_, descriptor] { Run(*state, descriptor); }).detach();
}

LineLog::~LineLog() {
  Flush(kLastFlush);
  absl::MutexLock lock(&state_->mutex);
  state_->is_closing = true;
}

void LineLog::Run(State& state, int descriptor) {
  while (true) {
    std::string line;
    {
      absl::MutexLock lock(&state.mutex);
      state.mutex.Await(absl::Condition(&state, &State::HasWork));
      if (state.is_closing) return;
      line = std::move(state.queue.front());
      state.queue.pop_front();
      state.is_writing = true;
    }
    const bool is_written = WriteAll(descriptor, line);
    absl::MutexLock lock(&state.mutex);
    state.is_writing = false;
    if (!is_written) ++state.n_dropped;
  }
}

void LineLog::Write(std::string line) {
  Shorten(line, kMaxLineBytes - 1);
  std::replace(line.begin(), line.end(), '\n', ' ');
  line.push_back('\n');
  absl::MutexLock lock(&state_->mutex);
  if (state_->queue.size() < kMaxQueuedLines) {
    state_->queue.push_back(std::move(line));
  } else {
    ++state_->n_dropped;
  }
}

bool LineLog::Flush(absl::Duration timeout) {
  absl::MutexLock lock(&state_->mutex);
  return state_->mutex.AwaitWithTimeout(absl::Condition(state_.get(), &State::IsIdle), timeout);
}

int64_t LineLog::n_dropped() const {
  absl::MutexLock lock(&state_->mutex);
  return state_->n_dropped;
}

}  // namespace lowkey

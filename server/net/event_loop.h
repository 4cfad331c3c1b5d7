#ifndef LOWKEY_SERVER_NET_EVENT_LOOP_H_
#define LOWKEY_SERVER_NET_EVENT_LOOP_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lowkey {

// One thread that waits for sockets, and runs the work that other threads post. What belongs to a
// loop is used on its thread alone. Work must neither block nor throw.
class EventLoop {
 public:
  // Starts the thread. RESOURCE_EXHAUSTED if the system has no descriptor or thread left.
  static absl::StatusOr<std::unique_ptr<EventLoop>> Start();

  ~EventLoop();  // Stop
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs what was posted before, then ends the thread. Must not be called on the loop's thread.
  void Stop();

  // Runs `work` on the loop's thread, in the order of the calls. Thread-safe; costs a system call
  // when the loop sleeps. After Stop the work is destroyed without being run.
  void Post(std::function<void()> work);

  // Posts and waits until it has run. Must not be called on the loop's thread.
  void PostAndWait(const std::function<void()>& work);

  bool IsThisThread() const;

  // Calls `tick` every `period` until the loop stops. On the loop's thread only.
  void Every(absl::Duration period, std::function<void(absl::Time now)> tick);

  // Returns how late the tick that runs is: for so long the loop was busy. On the loop's thread.
  absl::Duration lateness() const;

  // Reactor is what Listener and Transport register with; only server/net knows its type.
  struct Reactor;
  Reactor& reactor() { return *reactor_; }

 private:
  EventLoop();

  const std::unique_ptr<Reactor> reactor_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_EVENT_LOOP_H_

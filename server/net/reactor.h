#ifndef LOWKEY_SERVER_NET_REACTOR_H_
#define LOWKEY_SERVER_NET_REACTOR_H_

// This header is for the sources of this folder alone: it is the only header that includes Asio.

#define BOOST_ASIO_NO_DEPRECATED
// clang-format off
#include <utility>  // Asio 1.74 uses std::exchange without including it
// clang-format on

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/net/event_loop.h"

namespace lowkey {

struct EventLoop::Reactor {
  struct Ticker {
    boost::asio::steady_timer timer;
    std::chrono::nanoseconds period;
    std::function<void(absl::Time)> tick;
  };

  Reactor() : work(context.get_executor()) {}

  boost::asio::io_context context;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  // The tickers belong to the loop's thread.
  std::list<Ticker> tickers;
  absl::Duration lateness;  // of the tick that runs
  absl::Mutex mutex;
  bool is_stopping ABSL_GUARDED_BY(mutex) = false;
  absl::Mutex join_mutex;
  std::thread thread ABSL_GUARDED_BY(join_mutex);
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_REACTOR_H_

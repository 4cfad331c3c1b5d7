#include "server/net/event_loop.h"

#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/status_macros.h"
#include "engine/base/threads/short_turns.h"
#include "engine/base/threads/short_work.h"
#include "server/net/reactor.h"

namespace lowkey {
namespace {

using Ticker = EventLoop::Reactor::Ticker;

void AwaitTick(EventLoop::Reactor& reactor, Ticker& ticker) {
  RunInTheEnd([&reactor, &ticker] {
    ticker.timer.async_wait([&reactor, &ticker](const boost::system::error_code& error) {
      if (error) return;
      reactor.lateness = absl::FromChrono(std::chrono::steady_clock::now() - ticker.timer.expiry());
      RunContained([&ticker] { ticker.tick(SteadyNow()); });
      // Ticks that a busy loop has missed are left out.
      const auto now = std::chrono::steady_clock::now();
      const auto next = ticker.timer.expiry() + ticker.period;
      ticker.timer.expires_at(next > now ? next : now + ticker.period);
      AwaitTick(reactor, ticker);
    });
  });
}

}  // namespace

EventLoop::EventLoop() : reactor_(std::make_unique<Reactor>()) {}

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Start() {
  // OpenSSL writes to sockets in the way that raises it.
  std::signal(SIGPIPE, SIG_IGN);
  // The constructors of Asio and of std::thread throw.
  try {
    std::unique_ptr<EventLoop> loop(new EventLoop());
    Reactor& reactor = *loop->reactor_;
    // Asio opens its descriptors at the first use.
    const boost::asio::steady_timer first_use(reactor.context);
    absl::MutexLock lock(&reactor.join_mutex);
    reactor.thread = std::thread([&reactor]() noexcept {
      TakeShortTurns();  // strangers wait for this thread, and it never computes for long
      reactor.context.run();
    });
    return loop;
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot start an event loop: ", error.what()));
  }
}

EventLoop::~EventLoop() { Stop(); }

void EventLoop::Stop() {
  LK_CHECK(!IsThisThread());
  {
    absl::MutexLock lock(&reactor_->mutex);
    if (!reactor_->is_stopping) {
      reactor_->is_stopping = true;
      boost::asio::io_context& context = reactor_->context;
      RunInTheEnd([&context] { boost::asio::post(context, [&context] { context.stop(); }); });
    }
  }
  absl::MutexLock lock(&reactor_->join_mutex);
  if (reactor_->thread.joinable()) reactor_->thread.join();
}

void EventLoop::Post(std::function<void()> work) {
  absl::MutexLock lock(&reactor_->mutex);
  if (reactor_->is_stopping) return;
  boost::asio::post(reactor_->context, [work = std::move(work)] {
    const ShortWork short_work;
    RunContained(work);
  });
}

void EventLoop::PostAndWait(const std::function<void()>& work) {
  LK_CHECK(!IsThisThread());
  RunInTheEnd([this, &work] {
    absl::Notification done;
    // Whether the work is run or not, its end is that it is destroyed.
    std::shared_ptr<void> end(nullptr, [&done](void*) { done.Notify(); });
    Post([&work, end = std::move(end)] { work(); });
    done.WaitForNotification();
  });
}

absl::Duration EventLoop::lateness() const { return reactor_->lateness; }

bool EventLoop::IsThisThread() const {
  return reactor_->context.get_executor().running_in_this_thread();
}

void EventLoop::Every(absl::Duration period, std::function<void(absl::Time now)> tick) {
  const std::chrono::nanoseconds nanoseconds = absl::ToChronoNanoseconds(period);
  boost::asio::steady_timer timer(reactor_->context, nanoseconds);
  AwaitTick(*reactor_,
            reactor_->tickers.emplace_back(Ticker{std::move(timer), nanoseconds, std::move(tick)}));
}

}  // namespace lowkey

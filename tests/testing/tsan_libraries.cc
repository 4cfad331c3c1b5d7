// Debian's Abseil and gRPC are not compiled with ThreadSanitizer, which therefore sees none of the
// order that an absl::Mutex or a completion queue makes, and would report everything that passes
// through one. In a build with ThreadSanitizer these definitions stand before the libraries', also
// for calls between libraries: each tells what it orders and then calls the library's.
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

// Named by the linker's -u, so that this file is in every program.
extern "C" int lowkey_tsan_libraries;
int lowkey_tsan_libraries = 0;

// The library's function behind the one that is being defined here.
#define LK_REAL_C(signature, symbol) \
  static const auto real = reinterpret_cast<signature>(dlsym(RTLD_NEXT, symbol))
#define LK_REAL(signature, symbol) LK_REAL_C(signature, "_ZN" symbol)
#define LK_CONST_REAL(signature, symbol) LK_REAL(signature, "K" symbol)

namespace absl {
ABSL_NAMESPACE_BEGIN
namespace {

// The mutex whose waiters' conditions this thread is evaluating, inside the library.
thread_local Mutex* condition_mutex = nullptr;

class EvaluatesConditionsOf {
 public:
  explicit EvaluatesConditionsOf(Mutex* mutex) : outer_(condition_mutex) {
    condition_mutex = mutex;
  }
  ~EvaluatesConditionsOf() { condition_mutex = outer_; }

 private:
  Mutex* const outer_;
};

// A call of the library's that comes back with the lock, whether or not it had it before. Others
// evaluate its condition meanwhile.
template <typename Call>
auto Waits(Mutex* mutex, const Call& call) {
  struct Relocked {
    ~Relocked() { __tsan_acquire(mutex); }
    Mutex* mutex;
  };
  __tsan_release(mutex);
  const Relocked relocked{mutex};
  const EvaluatesConditionsOf scope(mutex);
  return call();
}

}  // namespace

void Mutex::Lock() {
  LK_REAL(void (*)(Mutex*), "4absl7debian35Mutex4LockEv");
  real(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  LK_REAL(void (*)(Mutex*), "4absl7debian35Mutex6UnlockEv");
  __tsan_release(this);
  const EvaluatesConditionsOf scope(this);
  real(this);
}

bool Mutex::TryLock() {
  LK_REAL(bool (*)(Mutex*), "4absl7debian35Mutex7TryLockEv");
  if (!real(this)) return false;
  __tsan_acquire(this);
  return true;
}

void Mutex::ReaderLock() {
  LK_REAL(void (*)(Mutex*), "4absl7debian35Mutex10ReaderLockEv");
  real(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  LK_REAL(void (*)(Mutex*), "4absl7debian35Mutex12ReaderUnlockEv");
  __tsan_release(this);
  const EvaluatesConditionsOf scope(this);
  real(this);
}

void Mutex::LockWhen(const Condition& condition) {
  LK_REAL(void (*)(Mutex*, const Condition&), "4absl7debian35Mutex8LockWhenERKNS0_9ConditionE");
  Waits(this, [&] { real(this, condition); });
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  LK_REAL(bool (*)(Mutex*, const Condition&, Time),
          "4absl7debian35Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  return Waits(this, [&] { return real(this, condition, deadline); });
}

void Mutex::Await(const Condition& condition) {
  LK_REAL(void (*)(Mutex*, const Condition&), "4absl7debian35Mutex5AwaitERKNS0_9ConditionE");
  Waits(this, [&] { real(this, condition); });
}

// AwaitWithTimeout calls it.
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  LK_REAL(bool (*)(Mutex*, const Condition&, Time),
          "4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  return Waits(this, [&] { return real(this, condition, deadline); });
}

void CondVar::Wait(Mutex* mutex) {
  LK_REAL(void (*)(CondVar*, Mutex*), "4absl7debian37CondVar4WaitEPNS0_5MutexE");
  Waits(mutex, [&] { real(this, mutex); });
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  LK_REAL(bool (*)(CondVar*, Mutex*, Duration),
          "4absl7debian37CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  return Waits(mutex, [&] { return real(this, mutex, timeout); });
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  LK_REAL(bool (*)(CondVar*, Mutex*, Time),
          "4absl7debian37CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  return Waits(mutex, [&] { return real(this, mutex, deadline); });
}

// Called with the lock held, by whichever thread gives it away.
bool Condition::Eval() const {
  LK_CONST_REAL(bool (*)(const Condition*), "4absl7debian39Condition4EvalEv");
  if (condition_mutex == nullptr) return real(this);
  __tsan_acquire(condition_mutex);
  const bool is_true = real(this);
  __tsan_release(condition_mutex);
  return is_true;
}

void Notification::Notify() {
  LK_REAL(void (*)(Notification*), "4absl7debian312Notification6NotifyEv");
  __tsan_release(this);
  real(this);
}

void Notification::WaitForNotification() const {
  LK_CONST_REAL(void (*)(const Notification*),
                "4absl7debian312Notification19WaitForNotificationEv");
  real(this);
  __tsan_acquire(const_cast<Notification*>(this));
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  LK_CONST_REAL(bool (*)(const Notification*, Duration),
                "4absl7debian312Notification30WaitForNotificationWithTimeoutENS0_8DurationE");
  const bool is_notified = real(this, timeout);
  if (is_notified) __tsan_acquire(const_cast<Notification*>(this));
  return is_notified;
}

ABSL_NAMESPACE_END
}  // namespace absl

// What is begun comes before what its completion queue brings back under the same tag.
extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t nops, void* tag,
                                      void* reserved) {
  LK_REAL_C(decltype(&grpc_call_start_batch), "grpc_call_start_batch");
  __tsan_release(tag);
  return real(call, ops, nops, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* cq, gpr_timespec deadline,
                                      void* reserved) {
  LK_REAL_C(decltype(&grpc_completion_queue_next), "grpc_completion_queue_next");
  const grpc_event event = real(cq, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* cq, void* tag, gpr_timespec deadline,
                                       void* reserved) {
  LK_REAL_C(decltype(&grpc_completion_queue_pluck), "grpc_completion_queue_pluck");
  const grpc_event event = real(cq, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(tag);
  return event;
}

}  // extern "C"

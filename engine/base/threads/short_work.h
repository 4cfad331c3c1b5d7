#ifndef LOWKEY_ENGINE_BASE_THREADS_SHORT_WORK_H_
#define LOWKEY_ENGINE_BASE_THREADS_SHORT_WORK_H_

namespace lowkey {

// Held by a thread while it does work of well under a millisecond that somebody waits for. Where
// all cores compute, such a thread loses its core at a tick of the kernel, and gets it back at the
// next, up to 4 ms later, unless a thread that computes gives way. Any thread may hold any number.
class ShortWork {
 public:
  ShortWork();
  ~ShortWork();
  ShortWork(const ShortWork&) = delete;
  ShortWork& operator=(const ShortWork&) = delete;
};

// A thread that computes for long calls this between pieces of work. Yields its core, and returns
// true, if a ShortWork is held and none has begun or ended for 0.25 ms: then one has lost its core.
// Yields at most once until the next begins or ends, as each yield costs this thread a part of its
// share where other programs compute. Costs one load while none is held.
bool GiveWay();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_THREADS_SHORT_WORK_H_

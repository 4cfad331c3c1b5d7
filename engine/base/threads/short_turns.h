#ifndef LOWKEY_ENGINE_BASE_THREADS_SHORT_TURNS_H_
#define LOWKEY_ENGINE_BASE_THREADS_SHORT_TURNS_H_

namespace lowkey {

// Asks Linux to run this thread, and those that it starts, in turns of 0.1 ms, which begin soon
// after it wakes although all cores compute. It gets no more time than before. Kernels before 6.12
// have one length of turn for all. Threads with a policy of their own keep it.
void TakeShortTurns();

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_THREADS_SHORT_TURNS_H_

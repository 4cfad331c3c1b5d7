#ifndef LOWKEY_TESTS_ENGINE_SCHEDULER_SCHEDULER_TESTING_H_
#define LOWKEY_TESTS_ENGINE_SCHEDULER_SCHEDULER_TESTING_H_

#include <initializer_list>
#include <ostream>
#include <vector>

#include "engine/scheduler/scheduler.h"
#include "gtest/gtest.h"

namespace lowkey {

inline bool operator==(const ScheduledRows& a, const ScheduledRows& b) {
  return a.request == b.request && a.choice == b.choice && a.first_position == b.first_position &&
         a.n_rows == b.n_rows && a.samples == b.samples;
}

inline void PrintTo(const ScheduledRows& r, std::ostream* out) {
  *out << "{request " << r.request << ", choice " << r.choice << ", rows " << r.first_position
       << " + " << r.n_rows << (r.samples ? ", samples}" : "}");
}

inline const Scheduler::Options kOptions{8, 4, 100, 3};

inline SchedulerRequest Request(uint64_t id, int64_t n_prompt_tokens, int32_t n_choices = 1,
                                int64_t reserved_bytes = 10) {
  SchedulerRequest r;
  r.id = id;
  r.n_prompt_tokens = n_prompt_tokens;
  r.n_choices = n_choices;
  r.max_new_tokens = 1000;
  r.bytes = [reserved_bytes](int64_t) { return reserved_bytes; };
  return r;
}

inline void Enqueue(Scheduler& s, std::initializer_list<SchedulerRequest> requests) {
  for (const SchedulerRequest& r : requests) ASSERT_TRUE(s.Enqueue(r).ok());
}

inline std::vector<ScheduledRows> Step(Scheduler& s) {
  ScheduledBatch batch = s.NextBatch();
  s.Commit(batch);
  return batch.rows;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_SCHEDULER_SCHEDULER_TESTING_H_
